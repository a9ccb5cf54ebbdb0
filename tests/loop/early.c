/* SPDX-License-Identifier: Apache-2.0
 *
 * early.c - the messages of a rank come to another rank before that has added their set.
 *
 * usage: early preempt|stop      what the early rank asks for: that all stop after the same step, or the set's end
 *
 * Two ranks, both driven by one thread, so that the order is always the same. Rank 0 is the root of the set: it answers
 * in the step that adds the set.
 */
#include "loop/place.h"
#include "loop/progress.h"
#include "worlds.h"

#define SET 1
#define MOST_TURNS 1000

typedef struct joining {
    worlds *w;
    int32_t rank;
} joining;

static void *join(void *argument) {
    joining *me = argument;
    worlds_join(me->w, me->rank);
    return NULL;
}

static void make_world(worlds *w) {
    pthread_t threads[2];
    joining ranks[2] = {{w, 0}, {w, 1}};
    worlds_prepare(w, 2, 1);
    for (int r = 0; r < 2; r++)
        pthread_create(&threads[r], NULL, join, &ranks[r]);
    for (int r = 0; r < 2; r++) {
        pthread_join(threads[r], NULL);
        CHECK(hc__driver_try(w->loops[r])); /* ours from here on */
    }
}

static void finish_alone(hc_loop *loop, hc_handle *handle) {
    for (int turn = 0; !hc_handle_done(handle); turn++) {
        CHECK(turn < MOST_TURNS);
        hc__progress_once(loop);
    }
    CHECK(handle->status == HC_OK);
    hc_handle_release(handle);
}

static hc_handle *command(hc_loop *loop, int kind, uint32_t set) {
    hc_handle *handle = hc_handle_new(kind, set, 0, 0, NULL, 0, 0);
    hc_loop_submit(loop, handle, 1);
    return handle;
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
    hc_handle *const stops[2] = {command(w->loops[0], HC_EV_STOP, set),
                                 first ? first : command(w->loops[1], HC_EV_STOP, set)};
    progress_until_done(w, stops);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int stops = !strcmp(argv[1], "stop");
    worlds w = {.knobs = {.engine = {.cache_capacity = 4, .fusion_threshold = 4096, .raise_bytes = 4096},
                          .wire = HC_WIRE_SAME}};
    hc_handle *stop = NULL;
    make_world(&w);
    add_set(&w, 1);
    if (stops)
        stop = command(w.loops[1], HC_EV_STOP, SET);
    else
        finish_alone(w.loops[1], command(w.loops[1], HC_EV_PREEMPT, SET));
    drive(&w, 1);
    drive(&w, 0); /* it keeps the message */
    add_set(&w, 0);
    for (int turn = 0; turn < 20; turn++)
        for (int r = 0; r < 2; r++)
            drive(&w, r);
    for (int r = 0; r < 2 && !stops; r++)
        CHECK(hc_loop_preempted(w.loops[r], SET, UINT64_MAX));
    stop_both(&w, SET, stop);
    hc_handle *const removals[2] = {command(w.loops[0], HC_EV_REMOVE_SET, SET),
                                    command(w.loops[1], HC_EV_REMOVE_SET, SET)};
    progress_until_done(&w, removals);
    stop_both(&w, 0, NULL);
    for (int r = 0; r < 2; r++) {
        hc__driver_vacate(w.loops[r]);
        hc_loop_free(w.loops[r]);
    }
    worlds_end(&w);
    puts("fine");
    return 0;
}
