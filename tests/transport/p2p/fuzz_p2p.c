/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_p2p.c - arbitrary bytes on the control edges, and arbitrary headers of point-to-point messages (libFuzzer).
 *
 * Rank 0 is real: its node control segment, its control edges, its point-to-point layer. Rank 1 shares its node, rank 2
 * is on another one; both are the fuzzer. Input: steps, a byte each with its arguments behind it. Rank 0 posts and
 * withdraws operations; the others write messages, or bytes that are none, into their ring or the net. Whatever comes,
 * rank 0 leaves no buffer (a sanitizer looks), an operation ends once, and what it refuses ends its World, as the loop
 * does it.
 */
#include "transport/net/local.h"
#include "transport/p2p/p2p_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3, NODE = 2, OPS = 24, FRAMES = 64 };
enum step { RECEIVE, SEND, MESSAGE, RAW, TURN, WITHDRAW, FORGET, STEPS };
enum repair { FIT_HEADER = 1, FIT_NUMBERS = 2, FIT_BYTES = 4 };

static const size_t sizes[] = {0, 1, 300, 8 << 10, (8 << 10) + 1, 33000, 70000, 300000};
#define NSIZES (sizeof sizes / sizeof *sizes)

typedef struct frame { /* of rank 2, on its way */
    hc_net_request *request;
    uint8_t *bytes;
} frame;

typedef struct world {
    hc_segment segment;
    hc_node_control *nodes[NODE];
    hc_net *nets[RANKS];
    hc_control *control;
    hc_p2p *p2p;
    hc_p2p_op ops[OPS];
    uint8_t is_done[OPS];
    int nops, nframes, is_broken;
    frame frames[FRAMES];
} world;

typedef struct input {
    const uint8_t *at, *end;
} input;

static uint64_t messages, refused, finished;

static void say_totals(void) {
    fprintf(stderr, "fuzz_p2p: %llu messages read, %llu of them refused, %llu operations ended\n",
            (unsigned long long)messages, (unsigned long long)refused, (unsigned long long)finished);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    atexit(say_totals);
    return 0;
}

/* Instead of the kernels', of which nothing else is used: a sanitizer looks at each byte, and compiles much less. */
void hc_host_copy(void *to, const void *from, size_t bytes) {
    if (bytes)
        memcpy(to, from, bytes);
}

static void must(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fuzz_p2p: %s\n", what);
    abort();
}

static uint8_t next(input *in) {
    return in->at < in->end ? *in->at++ : 0;
}

/* ---- the world ----------------------------------------------------------------------------------------- */

static void world_open(world *w) {
    const int32_t world_rank_of[NODE] = {0, 1}, local_of[RANKS] = {0, 1, -1};
    memset(w, 0, sizeof *w);
    must(hc_segment_private(&w->segment, hc_node_control_bytes(NODE)) == 0, "no segment");
    for (int r = 0; r < NODE; r++)
        must(hc_node_control_new(&w->segment, r, NODE, world_rank_of, &w->nodes[r]) == 0, "no node control segment");
    must(hc_local_net_new(RANKS, w->nets) == 0, "no nets");
    must(hc_control_new(w->nodes[0], w->nets[0], local_of, RANKS, &w->control) == 0, "no control edges");
    must(hc_p2p_new(w->nodes[0], w->nets[0], w->control, local_of, 0, RANKS, &w->p2p) == 0, "no point-to-point layer");
}

static void world_close(world *w) {
    hc_p2p_free(w->p2p);
    w->control->ops->free(w->control);
    for (int i = 0; i < w->nframes; i++) {
        if (w->frames[i].request)
            w->nets[2]->ops->cancel(w->nets[2], &w->frames[i].request);
        free(w->frames[i].bytes);
    }
    for (int r = 0; r < RANKS; r++)
        w->nets[r]->ops->free(w->nets[r]);
    for (int r = 0; r < NODE; r++)
        hc_node_control_free(w->nodes[r]);
    hc_segment_close(&w->segment);
    for (int i = 0; i < w->nops; i++)
        free(w->ops[i].data);
}

/* ---- rank 0 ---------------------------------------------------------------------------------------------- */

static void fail(world *w) {
    w->is_broken = 1;
    hc_p2p_abandon(w->p2p);
}

static void post(world *w, input *in, int receives) {
    if (w->nops == OPS)
        return;
    hc_p2p_op *op = &w->ops[w->nops++];
    size_t bytes = sizes[next(in) % NSIZES];
    uint8_t *data = calloc(1, bytes + !bytes);
    must(data != NULL, "no memory");
    int32_t peer = receives ? next(in) % (RANKS + 1) - 1 : next(in) % RANKS;
    uint32_t set = next(in) % 3, tag = next(in) % 2;
    *op = (hc_p2p_op){
        .receives = (uint8_t)receives, .set = set, .tag = tag, .peer = peer, .data = data, .bytes = bytes, .owner = op};
    if (hc_p2p_post(w->p2p, op) < 0)
        fail(w);
}

static void take_done(world *w) {
    for (hc_p2p_op *op; (op = hc_p2p_done(w->p2p));) {
        must(!w->is_done[op - w->ops], "an operation has ended twice");
        must(!op->receives || op->status != HC_OK || op->received <= op->bytes,
             "a receive of more than it has memory for");
        w->is_done[op - w->ops] = 1;
        finished++;
    }
}

/* One message, as the loop takes it. */
static int read_one(world *w) {
    int32_t from = -1;
    const uint8_t *bytes = NULL;
    size_t n = 0;
    int status = w->control->ops->receive(w->control, &from, &bytes, &n);
    if (status == HC_DONE) {
        must(from == 1 || from == 2, "a message of nobody");
        uint8_t *exact = malloc(n + !n); /* no byte behind the message may be read */
        must(exact != NULL, "no memory");
        memcpy(exact, bytes, n);
        messages++;
        status = hc_p2p_message(w->p2p, from, exact, n) < 0 ? HC_BAD_MESSAGE : HC_DONE;
        free(exact);
    }
    if (status < 0) {
        refused++;
        fail(w);
    }
    return status == HC_DONE;
}

static void turn(world *w) {
    while (!w->is_broken && read_one(w)) {}
    if (!w->is_broken && hc_p2p_progress(w->p2p) < 0)
        fail(w);
    int32_t peer = -1;
    while (!w->is_broken && w->control->ops->progress(w->control, &peer) > HC_IDLE && peer >= 0) {}
    for (int r = 0; r < RANKS; r++)
        must(w->p2p->credits[r].used <= HC__P2P_CREDIT_MAX, "more credit than there is");
    take_done(w);
}

static void withdraw(world *w, int which) {
    if (which < w->nops && !w->is_done[which] && !w->is_broken && w->ops[which].queue)
        w->is_done[which] = (uint8_t)hc_p2p_withdraw(w->p2p, &w->ops[which]);
}

/* ---- ranks 1 and 2 ----------------------------------------------------------------------------------------- */

static void write_ring(world *w, const uint8_t *bytes, size_t n) {
    hc__ring *ring = hc__node_control_ring(w->nodes[1], 1, 0);
    hc__ring_write(ring, hc__node_control_ring_room(w->nodes[1]), bytes, n);
    hc__node_control_mark_dirty(w->nodes[1], 0);
}

static void write_net(world *w, const uint8_t *bytes, size_t n) {
    if (w->nframes == FRAMES)
        return;
    frame *f = &w->frames[w->nframes++];
    f->bytes = malloc(n + !n);
    must(f->bytes != NULL, "no memory");
    memcpy(f->bytes, bytes, n);
    must(w->nets[2]->ops->isend(w->nets[2], 0, HC_TAG_CONTROL, f->bytes, n, &f->request) == 0, "no send");
}

/* Most headers that a fuzzer invents fail at their first bytes; repaired ones get behind. */
static void repair(uint8_t *bytes, size_t n, int repairs) {
    hc__p2p_header h;
    if (n < sizeof h)
        return;
    memcpy(&h, bytes, sizeof h);
    if (repairs & FIT_HEADER) {
        h.mark = HC__P2P_MARK;
        h.kind = (uint8_t)(1 + (h.kind + HC__P2P_IN_CELL - 1) % HC__P2P_IN_CELL); /* a kind that exists is kept */
        h.cell %= 40;
    }
    if (repairs & FIT_NUMBERS) {
        h.set %= 3;
        h.tag %= 2;
        h.to %= 16;
        h.from %= 16;
    }
    if (repairs & FIT_BYTES)
        h.bytes = h.kind == HC__P2P_EAGER  ? n - sizeof h
                  : h.kind == HC__P2P_CELL ? h.bytes % 40000
                                           : sizes[h.bytes % NSIZES];
    memcpy(bytes, &h, sizeof h);
}

static void write_message(world *w, input *in, int is_framed) {
    uint8_t bytes[sizeof(uint64_t) + 1024];
    int peer = next(in), repairs = next(in);
    uint64_t low = next(in), n = (low | (uint64_t)next(in) << 8) % 1000;
    n = n > (size_t)(in->end - in->at) ? (size_t)(in->end - in->at) : n;
    size_t head = is_framed ? sizeof n : 0;
    memcpy(bytes, &n, head);
    memcpy(bytes + head, in->at, n);
    in->at += n;
    if (is_framed)
        repair(bytes + head, n, repairs);
    (peer % 2 ? write_ring : write_net)(w, bytes, head + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world w;
    input in = {data, data + size};
    world_open(&w);
    while (in.at < in.end && !w.is_broken) {
        switch (next(&in) % STEPS) {
        case RECEIVE:
            post(&w, &in, 1);
            break;
        case SEND:
            post(&w, &in, 0);
            break;
        case MESSAGE:
            write_message(&w, &in, 1);
            turn(&w);
            break;
        case RAW:
            write_message(&w, &in, 0);
            turn(&w);
            break;
        case WITHDRAW:
            withdraw(&w, next(&in));
            break;
        case FORGET:
            hc_p2p_forget(w.p2p, next(&in) % 3);
            break;
        default:
            turn(&w);
        }
    }
    turn(&w);
    world_close(&w);
    return 0;
}
