/* SPDX-License-Identifier: Apache-2.0
 *
 * stores_in_use.c - which copies into a node's segment are streamed, on two ranks.
 *
 *     stores_in_use REWRITES_FAST
 *
 * REWRITES_FAST: what the processor is said to be. Linked with --wrap for the two functions below.
 */
#include "transport/arithmetic.h"
#include "transport/ranks.h"
#include "transport/shm/shm_state.h"

#define ONE_ROUND ((int64_t)64 << 10)
#define MANY_ROUNDS ((int64_t)2 << 20)

static int rewrites_fast;
static _Thread_local int64_t streamed; /* copies of this rank */

void __real_hc_shared_copy(void *, const void *, size_t, enum hc_stores);
void __wrap_hc_shared_copy(void *, const void *, size_t, enum hc_stores);
int __wrap_hc_host_rewrites_fast(void);

void __wrap_hc_shared_copy(void *to, const void *from, size_t bytes, enum hc_stores stores) {
    streamed += stores == HC_STORES_STREAM;
    __real_hc_shared_copy(to, from, bytes, stores);
}

int __wrap_hc_host_rewrites_fast(void) {
    return rewrites_fast;
}

static void wait_for(rank_place *place, uint32_t seen) {
    CHECK(hc_doorbell_sleep(place->node_control, seen, 20000000000u), "nobody rang for 20 s");
}

/* Both ranks exchange `bytes` again and again, from a first trial on, each time in an operation of its own unless
 * `is_one`. Returns the number of streamed copies. */
static int64_t streamed_copies(rank_place *place, hc_node *node, int64_t bytes, int times, int is_one) {
    static char out[2][MANY_ROUNDS], in[2][MANY_ROUNDS];
    int64_t lengths[2] = {bytes, bytes}, before = streamed;
    hc_stream_read want[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    want[1 - place->rank] = (hc_stream_read){in[place->rank], 0, bytes};
    hc_stream_part mine = {out[place->rank], bytes};
    hc__choice_begin(&hc__shm_of(node)->choice, HC_STORES_PLAIN);
    node->turns = 0;
    for (int i = 0; i < times; i++) {
        node->turns = is_one ? node->turns : 0;
        for (int status = HC_IDLE; status != HC_DONE;) {
            uint32_t seen = hc_doorbell_listen(place->node_control);
            status = node->ops->exchange(node, &mine, 1, want, lengths, 1);
            CHECK(status >= 0, "status %d", status);
            if (status == HC_IDLE)
                wait_for(place, seen);
        }
    }
    return streamed - before;
}

/* Data that a core has just written is copied as chosen before, and is no part of a trial. */
static int64_t streamed_of_cached(hc__shm *shm, int times) {
    static _Thread_local char to[ONE_ROUND], from[ONE_ROUND];
    int64_t before = streamed;
    hc__choice_begin(&shm->choice, HC_STORES_PLAIN);
    shm->base.turns = 2;
    for (int i = 0; i < times; i++)
        hc__shm_show_cached(shm, to, from, sizeof from);
    return streamed - before;
}

static void body(rank_place *place) {
    int32_t locals[] = {0, 1};
    hc_node *node;
    int status = hc_shm_node_new(place->segment, place->node_control, locals, place->rank, 2, &node);
    CHECK(status == 0, "node: %d", status);
    hc_node_control_set_stores(place->node_control, HC_STORES_AUTO);
    int64_t few = streamed_copies(place, node, ONE_ROUND, 200, 0);
    CHECK(rewrites_fast ? few == 0 : few > 0, "rank %d streamed %lld copies of one round", place->rank, (long long)few);
    int64_t many = streamed_copies(place, node, MANY_ROUNDS, 20, 0);
    CHECK(many > 0, "rank %d streamed no copy of many rounds", place->rank);
    int64_t chain = streamed_copies(place, node, ONE_ROUND, 200, 1);
    CHECK(chain > 0, "rank %d streamed no copy of an operation of many exchanges", place->rank);
    int64_t cached = streamed_of_cached(hc__shm_of(node), 200);
    CHECK(cached == 0, "rank %d streamed %lld copies of data in its cache", place->rank, (long long)cached);
    node->ops->free(node);
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: stores_in_use REWRITES_FAST");
    rewrites_fast = atoi(argv[1]);
    ranks_run("threads", 2, hc_shm_bytes(2), body);
    return 0;
}
