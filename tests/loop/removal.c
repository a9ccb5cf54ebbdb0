/* SPDX-License-Identifier: Apache-2.0
 *
 * removal.c - a set is removed while a message of an array on a device is in the middle of its bytes.
 *
 * usage: removal ends|breaks     how the wait ends: the message arrives, or the World breaks
 *
 * Two ranks, both driven by one thread turn by turn, so that nothing depends on time: while one of them is not driven,
 * the other's message cannot move, and every turn must say so. A driver that hears of movement does not yield.
 */
#include "loop/clock.h"
#include "loop/failure.h"
#include "loop/progress.h"
#include "loop/set_queues.h"
#include "loop/state.h"
#include "worlds.h"

#define BYTES ((size_t)16 << 20) /* far more than is on its way at once */
#define MOST_TURNS 1000          /* to rest: every cell of this rank and some */
#define IDLE_TURNS 1000

static int opened;

static void free_plane(hc_data *data) {
    free(data);
}

static int open_staging(hc_data *data, hc_staging *staging, int sends) {
    (void)data;
    staging->own = staging->host = calloc(1, staging->bytes);
    CHECK(staging->own);
    if (sends)
        memcpy(staging->host, staging->device, staging->bytes);
    opened++;
    return HC_OK;
}

static int is_copied(hc_data *data, hc_staging *staging) {
    (void)data;
    (void)staging;
    return HC_DONE;
}

static int deliver(hc_data *data, hc_staging *staging) {
    (void)data;
    memcpy(staging->device, staging->host, staging->bytes);
    return HC_OK;
}

static void take_back(hc_data *data, hc_staging *staging) {
    (void)data;
    free(staging->own);
    staging->own = staging->host = NULL;
    opened--;
}

static void ignore(hc_data *data) {
    (void)data;
}

/* A data plane that has no device, and gives host memory for what is said to lie on one. */
static const struct hc_data_ops staging_ops = {.name = "staging",
                                               .abandon = ignore,
                                               .free = free_plane,
                                               .staging_open = open_staging,
                                               .staging_test = is_copied,
                                               .staging_deliver = deliver,
                                               .staging_close = take_back};

static int make_plane(hc_plane_maker *maker, int memory, hc_data **data, char *text) {
    (void)maker;
    (void)text;
    CHECK(memory == HC_MEMORY_CUDA);
    *data = calloc(1, sizeof **data);
    CHECK(*data);
    (*data)->ops = &staging_ops;
    return HC_OK;
}

static void keep_maker(hc_plane_maker *maker) {
    (void)maker;
}

static hc_plane_maker maker = {make_plane, keep_maker};

static hc_handle *op(hc_loop *loop, int receives, int32_t peer, uint8_t *array) {
    hc_p2p_op l = {.receives = (uint8_t)receives, .peer = peer, .data = array, .bytes = BYTES};
    hc_handle *handle = hc_handle_of_p2p(0, &l, HC_MEMORY_CUDA);
    hc_loop_submit(loop, handle, 1);
    return handle;
}

static void progress_both(const worlds *w) {
    for (int r = 0; r < 2; r++)
        hc__progress_once(w->loops[r]);
}

static void progress_until(const worlds *w, hc_handle *const done[2]) {
    while (!hc_handle_done(done[0]) || !hc_handle_done(done[1]))
        progress_both(w);
}

static void release_both(hc_handle *const handles[2], int status) {
    for (int r = 0; r < 2; r++) {
        CHECK(handles[r]->status == status);
        hc_handle_release(handles[r]);
    }
}

static void stop_both(const worlds *w) {
    hc_handle *const stops[2] = {submit_command(w->loops[0], HC_EV_STOP, 0),
                                 submit_command(w->loops[1], HC_EV_STOP, 0)};
    progress_until(w, stops);
    release_both(stops, HC_OK);
}

/* The sender alone is driven: it comes to rest, and stays there. */
static void wait_for_the_other(hc_loop *sender, hc_handle *removal) {
    for (int i = 0; hc__progress_once(sender); i++)
        CHECK(i < MOST_TURNS);
    for (int i = 0; i < IDLE_TURNS; i++)
        CHECK(!hc__progress_once(sender));
    CHECK(hc__about_to_sleep(sender, hc__loop_now()));
    CHECK(opened == 2 && !hc_handle_done(removal) && hc__set_queue_find(sender, 0));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int breaks = !strcmp(argv[1], "breaks");
    worlds w = {.maker = &maker,
                .knobs = {.engine = {.cache_capacity = 4, .fusion_threshold = 4096, .raise_bytes = 4096},
                          .wire = HC_WIRE_SAME}};
    uint8_t *sent = malloc(BYTES), *received = calloc(1, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (uint8_t)(i % 251);
    worlds_make_driven(&w, 2, 1);
    hc_handle *const p2p_ops[2] = {op(w.loops[0], 0, 1, sent), op(w.loops[1], 1, 0, received)};
    while (!p2p_ops[0]->op->moved)
        progress_both(&w);
    if (!breaks) /* a World whose log has ended has nothing left to break */
        stop_both(&w);
    hc_handle *const removals[2] = {submit_command(w.loops[0], HC_EV_REMOVE_SET, 0),
                                    submit_command(w.loops[1], HC_EV_REMOVE_SET, 0)};
    wait_for_the_other(w.loops[0], removals[0]);
    for (int r = 0; r < 2 && breaks; r++) {
        hc__loop_fail(w.loops[r], HC_TRANSPORT, -1, "planted");
        hc__progress_once(w.loops[r]);
        CHECK(hc_handle_done(removals[r]));
    }
    progress_until(&w, removals);
    CHECK(opened == 0 && !hc__set_queue_find(w.loops[0], 0) && !hc__set_queue_find(w.loops[1], 0));
    CHECK(breaks || !memcmp(sent, received, BYTES));
    release_both(p2p_ops, breaks ? HC_TRANSPORT : HC_OK);
    release_both(removals, HC_OK);
    worlds_end_driven(&w);
    free(sent);
    free(received);
    puts("fine");
    return 0;
}
