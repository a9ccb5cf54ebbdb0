/* SPDX-License-Identifier: Apache-2.0
 *
 * early.c - the messages of a rank come to another rank before that has added their set.
 *
 * usage: early preempt|stop      what the early rank asks for: that all stop after the same step, or the set's end
 *
 * Two ranks, both driven by one thread, so that the order is always the same. Rank 0 is the root of the set: it answers
 * in the step that adds the set.
 */
#include "loop/progress.h"
#include "worlds.h"

#define SET 1
#define MOST_TURNS 1000

static void finish_alone(hc_loop *loop, hc_handle *handle) {
    for (int turn = 0; !hc_handle_done(handle); turn++) {
        CHECK(turn < MOST_TURNS);
        hc__progress_once(loop);
    }
    CHECK(handle->status == HC_OK);
    hc_handle_release(handle);
}

static void add_set(worlds *w, int32_t rank) {
    hc_child children[2 * MOST];
    hc_set_config place = {.children = children};
    hc_tree_index *index = hc_tree_index_new(w->members, w->node_of, w->size, 2);
    hc_tree_place(index, rank, &place, children, 2 * MOST);
    place.set = SET;
    hc_set_parts parts = {.place = &place}; /* no data moves */
    hc_handle *add = hc_handle_new(HC_EV_ADD_SET, SET, 0, 0, NULL, 0, 0);
    add->parts = &parts;
    hc_loop_submit(w->loops[rank], add, 1);
    finish_alone(w->loops[rank], add);
    hc_tree_index_free(index);
}

static void drive(worlds *w, int32_t rank) {
    for (int turn = 0; turn < 20; turn++)
        hc__progress_once(w->loops[rank]);
}

static void progress_until_done(worlds *w, hc_handle *const handles[2]) {
    for (int turn = 0; !hc_handle_done(handles[0]) || !hc_handle_done(handles[1]); turn++) {
        CHECK(turn < MOST_TURNS);
        for (int r = 0; r < 2; r++)
            hc__progress_once(w->loops[r]);
    }
    for (int r = 0; r < 2; r++) {
        CHECK(handles[r]->status == HC_OK);
        hc_handle_release(handles[r]);
    }
}

static void stop_both(worlds *w, uint32_t set, hc_handle *first) {
    hc_handle *const stops[2] = {submit_command(w->loops[0], HC_EV_STOP, set),
                                 first ? first : submit_command(w->loops[1], HC_EV_STOP, set)};
    progress_until_done(w, stops);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int stops = !strcmp(argv[1], "stop");
    worlds w = {.knobs = {.engine = {.cache_capacity = 4, .fusion_threshold = 4096, .raise_bytes = 4096},
                          .wire = HC_WIRE_SAME}};
    hc_handle *stop = NULL;
    worlds_make_driven(&w, 2, 1);
    add_set(&w, 1);
    if (stops)
        stop = submit_command(w.loops[1], HC_EV_STOP, SET);
    else
        finish_alone(w.loops[1], submit_command(w.loops[1], HC_EV_PREEMPT, SET));
    drive(&w, 1);
    drive(&w, 0); /* it keeps the message */
    add_set(&w, 0);
    for (int turn = 0; turn < 20; turn++)
        for (int r = 0; r < 2; r++)
            drive(&w, r);
    for (int r = 0; r < 2 && !stops; r++)
        CHECK(hc_loop_preempted(w.loops[r], SET, UINT64_MAX));
    stop_both(&w, SET, stop);
    hc_handle *const removals[2] = {submit_command(w.loops[0], HC_EV_REMOVE_SET, SET),
                                    submit_command(w.loops[1], HC_EV_REMOVE_SET, SET)};
    progress_until_done(&w, removals);
    stop_both(&w, 0, NULL);
    worlds_end_driven(&w);
    puts("fine");
    return 0;
}
