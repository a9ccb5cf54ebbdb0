/* SPDX-License-Identifier: Apache-2.0
 *
 * place.c - the driver's place: how a thread takes and leaves it, and for how long the driver may sleep.
 */
#include "loop/clock.h"
#include "loop/handle.h"
#include "loop/place.h"
#include "loop/set_queues.h"
#include "loop/state.h"

#define LOOK_NS 20000ull /* ten times the cost of a poll that finds nothing */

/* ---- idle or not ------------------------------------------------------------------------------------- */

int hc__loop_idle(hc_loop *loop) {
    return hc_engine_quiet(loop->engine) && !loop->parts.control->waiting && !loop->sets.nrunning &&
           !loop->sets.ncounted && !loop->messages.unposted && !hc_p2p_is_moving(loop->parts.p2p) &&
           !atomic_load_explicit(&loop->inbox.newest, memory_order_relaxed);
}

int hc__loop_listens(hc_loop *loop) {
    return !atomic_load_explicit(&loop->trace.header->callers, memory_order_relaxed) && hc__loop_idle(loop);
}

enum hc__left hc__loop_left(hc_loop *loop) {
    return !hc__loop_idle(loop) ? HC__MOVES : loop->messages.nlistening ? HC__LISTENS : HC__QUIET;
}

/* ---- taken and left ---------------------------------------------------------------------------------- */

int hc__may_drive(const hc_loop *loop) {
    return !loop->config.one_thread || pthread_equal(pthread_self(), loop->background.maker);
}

int hc__driver_try(hc_loop *loop) {
    int free_place = 0;
    if (atomic_load_explicit(&loop->place.driving, memory_order_relaxed))
        return 0;
    if (!atomic_compare_exchange_strong_explicit(&loop->place.driving, &free_place, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return 0;
    atomic_store_explicit(&loop->place.call_me, 0, memory_order_seq_cst);
    return 1;
}

/* The driver takes the flush and then must see the request of each caller that has asked for it. If this replaces the
 * flush of another caller, an exchange carries on what that one has released; a store would not. */
void hc__ask_flush(hc_loop *loop) {
    atomic_exchange_explicit(&loop->place.flush, 1, memory_order_seq_cst);
}

int hc__look_away(hc_loop *loop) {
    atomic_store_explicit(&loop->place.call_me, 1, memory_order_seq_cst);
    return atomic_load_explicit(&loop->inbox.newest, memory_order_seq_cst) != NULL;
}

void hc__driver_vacate(hc_loop *loop) {
    atomic_store_explicit(&loop->place.driving, 0, memory_order_seq_cst);
    hc__wake_waiters(loop);
}

enum hc__left hc__driver_leave(hc_loop *loop) {
    enum hc__left left = hc__look_away(loop) ? HC__MOVES : hc__loop_left(loop);
    hc__driver_vacate(loop);
    return left;
}

/* 0 if the World's log has ended: the parent in the tree may have exited, and messages to it would never be sent.
 * hc_loop_free() sends the last messages to the children. */
int hc__loop_owes(hc_loop *loop) {
    return !loop->config.background && hc__may_drive(loop) && loop->parts.control->waiting &&
           !atomic_load_explicit(&loop->sets.queues[0].stopped, memory_order_relaxed) &&
           atomic_load_explicit(&loop->failure.broken, memory_order_relaxed) == HC_OK;
}

/* ---- asleep ------------------------------------------------------------------------------------------ */

/* Sets whether submitters must ring. A running raise timer bounds the delay of later requests (R3), so they need not
 * ring. Pairs with hc_loop_submit(): this sets the flag, then reads the inbox; submit pushes to the inbox, then reads
 * the flag. */
int hc__about_to_sleep(hc_loop *loop, uint64_t now) {
    int timer = loop->wake_at <= now + atomic_load_explicit(&loop->tuned.raise_window, memory_order_relaxed);
    atomic_store_explicit(&loop->place.call_me, !timer, memory_order_seq_cst);
    return !atomic_load_explicit(&loop->inbox.newest, memory_order_seq_cst) &&
           !atomic_load_explicit(&loop->place.flush, memory_order_seq_cst);
}

/* The shortest time between two polls, where only polls find messages. If nobody waits and nothing moves, only control
 * messages can arrive, and requests without a waiter are held back up to a raise window anyway. Each poll interrupts
 * the computation on this core (35 us, with its effect on the caches). */
static uint64_t shortest_sleep(hc_loop *loop) {
    int moves = loop->sets.nrunning || loop->messages.unposted || loop->parts.control->waiting ||
                hc_p2p_is_moving(loop->parts.p2p);
    uint64_t share = atomic_load_explicit(&loop->tuned.raise_window, memory_order_relaxed) / 2;
    int waits = atomic_load_explicit(&loop->trace.header->callers, memory_order_relaxed) > 0;
    return waits || moves || share < LOOK_NS ? LOOK_NS : share;
}

/* The net and devices wake no driver, so with them a sleep is at most a share of the time already waited. */
uint64_t hc__sleep_limit(hc_loop *loop, uint64_t now, uint64_t idle_since, uint64_t limit) {
    int listens = hc__loop_listens(loop);
    uint64_t ns = listens ? HC__IDLE_TICK : HC__HEARTBEAT_NS;
    if (loop->parts.net || loop->messages.unposted || hc__set_queues_need_polling(loop)) {
        uint64_t longest = listens ? HC__HEARTBEAT_NS : HC__MS;
        uint64_t shortest = shortest_sleep(loop);
        ns = (now - idle_since) / 4;
        if (ns < shortest)
            ns = shortest;
        if (ns > longest)
            ns = longest;
    }
    if (loop->wake_at < now + ns)
        ns = loop->wake_at > now ? loop->wake_at - now : 1;
    if (limit < now + ns)
        ns = limit > now ? limit - now : 1;
    return ns;
}
