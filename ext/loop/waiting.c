/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.c - how a thread waits for other ranks: it chooses to spin, yield or sleep between two polls.
 */
#include "loop/state.h"
#include "loop/waiting.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static void take_breath(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* about as long as x86's; `yield` does nothing on most cores */
#elif defined(__powerpc64__)
    __asm__ volatile("or 27,27,27" ::: "memory");
#elif defined(__riscv)
    __asm__ volatile(".4byte 0x0100000f" ::: "memory"); /* pause; older cores execute it as a fence */
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* The choice needs the cores of all ranks of the node; until all have started, a waiter yields. */
static int decide(hc_loop *loop) {
    hc_crowd crowd;
    int way = loop->config.wait;
    if (way == HC_WAIT_AUTO) {
        if (!hc_node_control_crowd(loop->parts.node_control, loop->config.machine_size, &crowd))
            return HC_WAIT_YIELD;
        way = crowd.shared ? HC_WAIT_YIELD : HC_WAIT_SPIN;
        if (crowd.shared)
            atomic_store_explicit(&loop->place.turns, (int)(crowd.ranks / crowd.cores), memory_order_relaxed);
    }
    atomic_store_explicit(&loop->place.way_to_wait, way, memory_order_relaxed);
    return way;
}

static int way_of(hc_loop *loop) {
    int way = atomic_load_explicit(&loop->place.way_to_wait, memory_order_relaxed);
    return way != HC_WAIT_AUTO ? way : decide(loop);
}

void hc__wait_a_moment(hc_loop *loop) {
    if (way_of(loop) == HC_WAIT_YIELD)
        sched_yield();
    else
        take_breath();
}

uint64_t hc__looks_for(hc_loop *loop, uint64_t ns) {
    return way_of(loop) == HC_WAIT_SLEEP ? 0 : ns;
}

uint64_t hc__looks_for_all(hc_loop *loop, uint64_t ns) {
    uint64_t looks = hc__looks_for(loop, ns);
    int turns = atomic_load_explicit(&loop->place.turns, memory_order_relaxed);
    return turns > 1 ? looks * (uint64_t)turns : looks;
}

/* A rank with one core must not spin here: the driving thread needs the core. */
int hc__looks_to_a_turn(hc_loop *loop) {
    int way = way_of(loop);
    if (way == HC_WAIT_YIELD)
        return HC__YIELDS_TO_A_TURN;
    return way == HC_WAIT_SPIN && hc_node_control_own_cores(loop->parts.node_control) > 1 ? HC__PAUSES_TO_A_TURN : 0;
}

int hc__has_a_core(hc_loop *loop) {
    return way_of(loop) == HC_WAIT_SPIN;
}

/* Latency does not matter at the end, and spinning would take a core for long. */
void hc__wait_at_end(void) {
    sched_yield();
}

static const char *const ways[] = {"auto", "spin", "yield", "sleep"};

int hc_wait_named(const char *word) {
    int way = HC_WAIT_SLEEP;
    while (way > HC_WAIT_AUTO && strcmp(word, ways[way]) != 0)
        way--;
    return way;
}

void hc_loop_describe_waiting(hc_loop *loop, char *text, size_t room) {
    hc_crowd crowd;
    int way = way_of(loop);
    if (loop->config.wait != HC_WAIT_AUTO ||
        !hc_node_control_crowd(loop->parts.node_control, loop->config.machine_size, &crowd))
        snprintf(text, room, "%s (HPCCOLL_WAIT)", ways[way]);
    else
        snprintf(text, room, "%s (%d rank%s %s%s %.3g core%s)", ways[way], (int)crowd.ranks, crowd.ranks > 1 ? "s" : "",
                 crowd.shared ? "share" : "on", crowd.by_quota ? " a quota of" : "", crowd.cores,
                 crowd.cores == 1 ? "" : "s");
}
