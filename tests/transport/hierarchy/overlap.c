/* SPDX-License-Identifier: Apache-2.0
 *
 * overlap.c - proof without a clock that the stages of the hierarchy overlap: overlap LAYOUT OPERATION
 *
 * A gate on each rank's net holds messages back until stages of other chunks have been seen:
 *
 *     nothing arrives before three chunks have been reduced in the node and sent off;
 *     of chunk 1 nothing arrives before chunk 0 has reached the tensors.
 *
 * Stages that waited for each other's end would wait here for ever.
 */
#include "transport/emulated.h"

#define CHUNK_BYTES 4096
#define CHUNKS 12
#define CHANNELS_SEEN 3

typedef struct gate {
    hc_net base;
    hc_net *inner;
    const hc_node *node;
    uint64_t channels; /* bit i: something was sent on channel i */
    struct held {
        hc_net_request *request;
        int32_t tag;
    } receives[64];
} gate;

static int gate_isend(hc_net *net, int32_t peer, int32_t tag, const void *data, size_t bytes,
                      hc_net_request **request) {
    gate *g = (gate *)net;
    g->channels |= UINT64_C(1) << tag;
    return g->inner->ops->isend(g->inner, peer, tag, data, bytes, request);
}

static int gate_irecv(hc_net *net, int32_t peer, int32_t tag, void *data, size_t room, hc_net_request **request) {
    gate *g = (gate *)net;
    int i = 0, status = g->inner->ops->irecv(g->inner, peer, tag, data, room, request);
    while (g->receives[i].request)
        i++;
    CHECK(i < 63, "more receives than expected");
    g->receives[i] = (struct held){*request, tag};
    return status;
}

static int is_held_back(const gate *g, int32_t tag) {
    int channels = 0;
    for (uint64_t rest = g->channels; rest; rest &= rest - 1)
        channels++;
    return channels < CHANNELS_SEEN || (tag > 0 && g->node->spread_bytes == 0);
}

static int gate_test(hc_net *net, hc_net_request **request, size_t *bytes, int32_t *peer) {
    gate *g = (gate *)net;
    for (int i = 0; i < 64; i++) {
        if (g->receives[i].request != *request)
            continue;
        if (is_held_back(g, g->receives[i].tag))
            return HC_IDLE;
        int status = g->inner->ops->test(g->inner, request, bytes, peer);
        if (!*request)
            g->receives[i].request = NULL;
        return status;
    }
    return g->inner->ops->test(g->inner, request, bytes, peer);
}

static int gate_cancel(hc_net *net, hc_net_request **request) {
    gate *g = (gate *)net;
    return g->inner->ops->cancel(g->inner, request);
}

static const struct hc_net_ops gate_ops = {
    .name = "gate", .isend = gate_isend, .irecv = gate_irecv, .test = gate_test, .cancel = gate_cancel};

static int scatters;

static void run_rank(int32_t rank) {
    rank_state s;
    gate g = {.base = *nets[rank], .inner = nets[rank]};
    int64_t count = CHUNKS * CHUNK_BYTES / 4 / (4 * size) * (4 * size);
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(rank + i % 5);
    g.base.ops = &gate_ops;
    make_rank(&s, rank, 0, &g.base);
    g.node = s.node;
    hc_piece piece;
    hc_batch batch = scatters ? scattered_sum_of(&piece, data, count) : sum_of(&piece, data, count);
    CHECK(run_batch(&s, &batch) == HC_DONE, "%s", hc_operation_name(batch.operation));
    int64_t own = scatters ? count / size : count;
    for (int64_t i = 0, at = scatters ? own * rank : 0; i < own; i++)
        CHECK(((float *)piece.out)[i] == (float)(size * (size - 1) / 2 + size * ((at + i) % 5)), "element %lld",
              (long long)i);
    drop_rank(&s);
    if (scatters)
        hc_result_free(piece.out);
    free(data);
}

int main(int argc, char **argv) {
    make_job(argc > 1 ? argv[1] : "0,0,1,1");
    knobs.chunk_bytes = CHUNK_BYTES;
    scatters = argc > 2 && !strcmp(argv[2], "reducescatter");
    run_threads(size, run_rank);
    drop_job();
    printf("ok\n");
    return 0;
}
