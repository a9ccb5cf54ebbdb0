/* SPDX-License-Identifier: Apache-2.0
 *
 * node_contract.c - what every hc_node must do, by random programs that all ranks draw from one seed.
 *
 *     node_contract threads|processes SIZE SEED ROUNDS [DELAY]
 *
 * Every rank computes every expected element itself. DELAY 1: pauses at random between calls.
 */
#include <sched.h>
#include <time.h>

#include "transport/ranks.h"
#include "values.h"

static uint64_t seed;
static int rounds_to_run, with_delays;

typedef struct tester {
    rank_place *place;
    hc_node *node;
    uint64_t shared, own; /* random states: equal on all ranks; this rank's */
    uint64_t aheads;      /* the number of test_ahead */
} tester;

static uint64_t draw(uint64_t *state, uint64_t n) {
    *state += 0x9e3779b97f4a7c15ULL;
    return mix(*state) % n;
}

static uint64_t all_draw(tester *t, uint64_t n) {
    return draw(&t->shared, n);
}

static void pause_at_random(tester *t) {
    if (!with_delays)
        return;
    uint64_t what = draw(&t->own, 40);
    struct timespec some = {0, 50000};
    if (what == 0)
        nanosleep(&some, NULL);
    if (what < 10)
        sched_yield();
}

/* Calls until done. A node may never say that nothing moved when it is the only one who can move: the doorbell is
 * what would wake us, so an idle answer is followed by a real sleep, and a lost wake-up is a time-out here.
 * */
#define UNTIL_DONE(t, call)                                                                                 \
    for (;;) {                                                                                              \
        uint32_t seen = hc_doorbell_listen((t)->place->node_control);                                       \
        int status = (call);                                                                                \
        CHECK(status >= 0, "status %d", status);                                                            \
        if (status == HC_DONE)                                                                              \
            break;                                                                                          \
        if (status == HC_IDLE)                                                                              \
            CHECK(hc_doorbell_sleep((t)->place->node_control, seen, 20000000000u), "nobody rang for 20 s"); \
        pause_at_random(t);                                                                                 \
    }

/* ---- allreduce ----------------------------------------------------------------------------------- */

typedef struct job {
    hc_batch batch;
    hc_rails rails;
    int net_copies; /* the network stage reduces this many equal shards */
    int64_t chunk;
    uint64_t seed;
    uint64_t joined; /* bit q: rank q has */
    int scaled;      /* factor 0.5, otherwise 1 */
    void **ins, **outs;
} job;

static const int64_t counts[] = {0, 1, 2, 7, 15, 16, 17, 100, 255, 1000, 1023, 1024, 4096, 5000, 20011, 65536, 131073};

static void draw_kind(tester *t, hc_batch *b) {
    do {
        b->dtype = (uint8_t)all_draw(t, HC_DTYPE_COUNT);
        b->reduction = (uint8_t)all_draw(t, HC_REDUCTION_COUNT);
    } while (!hc_reduction_defined(b->reduction, b->dtype));
    b->wire_dtype = b->dtype;
    if ((b->dtype == HC_FLOAT32 || b->dtype == HC_FLOAT64) && all_draw(t, 3) == 0)
        b->wire_dtype = all_draw(t, 2) ? HC_FLOAT16 : HC_BFLOAT16;
}

/* Alone a node divides by all; before a net stage by a power of two, which rounds nothing. */
static void draw_divisor(tester *t, job *j) {
    hc_batch *b = &j->batch;
    b->divisor = b->reduction == HC_AVERAGE ? t->place->size : 1;
    b->node_divisor = j->rails.count == 0 ? b->divisor : 1;
    while (j->rails.count > 0 && is_inexact(b->dtype) && b->node_divisor < b->divisor)
        b->node_divisor *= 2;
}

/* As many chunks under way as there is room for, or fewer. */
static void draw_rails(tester *t, job *j, int64_t longest) {
    const hc_batch *b = &j->batch;
    int64_t chunk = j->chunk < b->count ? j->chunk : b->count, bytes = chunk * (int64_t)hc_dtype_size(b->wire_dtype);
    int64_t room = HC_NODE_RESULTS * longest / (bytes > 0 ? (bytes + 4095) / 4096 * 4096 : 4096);
    j->rails.takes_turns = j->rails.count > 1 && all_draw(t, 2);
    j->rails.under_way = 1 + (int32_t)all_draw(t, (uint64_t)(room < 20 ? room : 20));
}

static void draw_job(tester *t, job *j) {
    memset(j, 0, sizeof *j);
    hc_batch *b = &j->batch;
    draw_kind(t, b);
    j->seed = all_draw(t, UINT64_MAX);
    j->scaled = is_inexact(b->dtype) && b->reduction <= HC_SUM && all_draw(t, 2);
    b->npieces = (int32_t)(all_draw(t, 3) ? 1 + all_draw(t, 3) : 1 + all_draw(t, 40));
    b->pieces = calloc((size_t)b->npieces, sizeof *b->pieces);
    j->ins = calloc((size_t)b->npieces, sizeof *j->ins);
    j->outs = calloc((size_t)b->npieces, sizeof *j->outs);
    size_t nsizes = sizeof counts / sizeof *counts;
    for (int32_t i = 0; i < b->npieces; i++) {
        int64_t n = counts[all_draw(t, b->npieces > 5 ? nsizes / 2 : nsizes)];
        b->pieces[i] = (hc_piece){.count = n, .row = 1, .scale = j->scaled && all_draw(t, 2) ? 0.5 : 1.0};
        b->count += n;
    }
    if (all_draw(t, 4) == 0)
        j->joined = all_draw(t, (UINT64_C(1) << t->place->size) - 1); /* never all */
    j->rails.count = (int32_t)all_draw(t, (uint64_t)t->place->size + 1);
    j->net_copies = 1 + (int)all_draw(t, 2);
    int64_t size = (int64_t)hc_dtype_size(b->dtype), most = hc_node_chunk_bytes(t->place->size) / size;
    j->chunk = 1 + (int64_t)all_draw(t, 3 + (uint64_t)(all_draw(t, 2) ? most - 3 : most / 50));
    if (b->count / j->chunk > 300)
        j->chunk = most;
    draw_rails(t, j, hc_node_chunk_bytes(t->place->size));
    if (j->rails.count == 0 && all_draw(t, 2))
        j->chunk = 0;
    draw_divisor(t, j);
}

static uint64_t piece_seed(const job *j, int32_t piece) {
    return mix(j->seed + (uint64_t)piece);
}

static void fill(tester *t, job *j) {
    hc_batch *b = &j->batch;
    size_t size = hc_dtype_size(b->dtype);
    for (int32_t i = 0; i < b->npieces; i++) {
        hc_piece *p = &b->pieces[i];
        int in_place = draw(&t->own, 2) == 0;
        j->ins[i] = calloc(1, (size_t)p->count * size + 1);
        j->outs[i] = in_place ? j->ins[i] : calloc(1, (size_t)p->count * size + 1);
        for (int64_t k = 0; k < p->count; k++)
            store(b->dtype, j->ins[i], k, input_of(b->dtype, b->reduction, piece_seed(j, i), t->place->rank, k));
        p->in = j->joined >> t->place->rank & 1 ? NULL : j->ins[i];
        p->out = p->in == NULL && draw(&t->own, 2) ? NULL : j->outs[i];
        p->drop = p->out == NULL;
    }
}

static void release(job *j) {
    for (int32_t i = 0; i < j->batch.npieces; i++) {
        if (j->outs[i] != j->ins[i])
            free(j->outs[i]);
        free(j->ins[i]);
    }
    free(j->ins);
    free(j->outs);
    free(j->batch.pieces);
}

/* Rounded once, to the type of the result, or to what travels. */
static double rounded(const job *j, double x) {
    const hc_batch *b = &j->batch;
    int dtype = j->rails.count > 0 ? b->wire_dtype : b->dtype;
    char narrow[8];
    dtype = dtype == HC_COMPLEX64 ? HC_FLOAT32 : dtype == HC_COMPLEX128 ? HC_FLOAT64 : dtype;
    hc_host_convert(narrow, dtype, &x, HC_FLOAT64, 1, 1.0);
    hc_host_convert(&x, HC_FLOAT64, narrow, dtype, 1, 1.0);
    return x;
}

static value expected_of(tester *t, const job *j, int32_t piece, int64_t i, int copies) {
    const hc_batch *b = &j->batch;
    value sum = {0, 0};
    int first = 1;
    for (int q = 0; q < t->place->size; q++) {
        if (j->joined >> q & 1)
            continue;
        value v = input_of(b->dtype, b->reduction, piece_seed(j, piece), q, i);
        sum = first ? normal(b->reduction, v) : combine(b->dtype, b->reduction, sum, v);
        first = 0;
    }
    sum.re *= b->pieces[piece].scale;
    sum.im *= b->pieces[piece].scale;
    if (copies > 1)
        sum = combine(b->dtype, b->reduction, sum, sum);
    if (b->divisor == 1)
        return sum;
    double re = sum.re / (double)b->divisor, im = sum.im / (double)b->divisor;
    return is_inexact(b->dtype) ? (value){rounded(j, re), rounded(j, im)} : (value){trunc(re), 0};
}

static void check_piece(tester *t, const job *j, int32_t piece, int64_t from, int64_t n, const void *out) {
    const hc_batch *b = &j->batch;
    for (int64_t i = 0; i < n; i++) {
        int copies = j->rails.count > 0 ? j->net_copies : 1;
        value got = load(b->dtype, out, i), want = expected_of(t, j, piece, from + i, copies);
        CHECK(got.re == want.re && got.im == want.im,
              "rank %d: %s %s (%s between nodes) piece %d element %lld of %lld: %g%+gi, expected %g%+gi "
              "(rails %d%s, %d under way, chunk %lld)",
              t->place->rank, hc_reduction_name(b->reduction), hc_dtype_name(b->dtype), hc_dtype_name(b->wire_dtype),
              piece, (long long)(from + i), (long long)b->pieces[piece].count, got.re, got.im, want.re, want.im,
              j->rails.count, j->rails.takes_turns ? " in turns" : "", j->rails.under_way, (long long)j->chunk);
    }
}

/* The network stage: as if other nodes had the same sum. */
static void fake_net(tester *t, const job *j, int64_t chunk) {
    void *shard;
    int64_t bounds[2], n;
    CHECK(t->node->ops->shard(t->node, chunk, &shard, bounds) == HC_DONE && bounds[0] == 0, "shard");
    n = bounds[1];
    const void *copies[2] = {shard, shard};
    if (n > 0)
        hc_host_reduce(shard, j->batch.wire_dtype, copies, j->net_copies, j->batch.wire_dtype, j->batch.reduction, n,
                       1.0, (double)j->batch.divisor / (double)j->batch.node_divisor);
    CHECK(t->node->ops->publish(t->node, chunk) == 0, "publish");
}

static int drives(const tester *t, const job *j, int64_t chunk) {
    return hc_rail_driven(&j->rails, t->place->rank, chunk) >= 0;
}

/* published: the next chunk of which this rank drives a rail. */
static int drive(tester *t, const job *j, int64_t *reduced, int64_t *published, int64_t *spread, int64_t nchunks) {
    const struct hc_node_ops *ops = t->node->ops;
    int moved = 0, status;
    if (*published < nchunks && !drives(t, j, *published))
        *published = j->rails.takes_turns && t->place->rank < j->rails.count ? t->place->rank : nchunks;
    if (*spread < (drives(t, j, *spread) ? *published : *reduced)) {
        CHECK((status = ops->spread(t->node, *spread)) >= 0, "spread: %d", status);
        *spread += status == HC_DONE;
        moved |= status;
    }
    if (*published < *reduced && draw(&t->own, 2)) {
        fake_net(t, j, *published);
        *published += j->rails.takes_turns ? j->rails.count : 1;
        moved = 1;
    }
    if (*reduced < nchunks && *reduced < *spread + ops->depth(t->node)) {
        CHECK((status = ops->reduce(t->node, *reduced)) >= 0, "reduce: %d", status);
        *reduced += status == HC_DONE;
        moved |= status;
    }
    if (*spread == nchunks)
        return HC_DONE;
    return moved || *published < *reduced ? HC_MOVED : HC_IDLE;
}

static void test_allreduce(tester *t) {
    job j;
    draw_job(t, &j);
    fill(t, &j);
    int64_t nchunks = -1, reduced = 0, published = 0, spread = 0;
    int status = t->node->ops->open(t->node, &j.batch, NULL, &j.rails, j.chunk, &nchunks);
    CHECK(status == 0, "open: %d (%lld elements per chunk)", status, (long long)j.chunk);
    CHECK(j.chunk == 0 || nchunks <= (j.batch.count + j.chunk - 1) / j.chunk, "%lld chunks", (long long)nchunks);
    UNTIL_DONE(t, drive(t, &j, &reduced, &published, &spread, nchunks));
    CHECK(t->node->ops->close(t->node) == 0, "close");
    for (int32_t i = 0; i < j.batch.npieces; i++)
        if (j.batch.pieces[i].out != NULL)
            check_piece(t, &j, i, 0, j.batch.pieces[i].count, j.batch.pieces[i].out);
    release(&j);
}

/* ---- scatter ------------------------------------------------------------------------------------- */

static void test_scatter(tester *t) {
    job j;
    draw_job(t, &j);
    fill(t, &j);
    j.rails.count = 0;
    draw_divisor(t, &j);
    hc_batch *b = &j.batch;
    int64_t bounds[RANKS_MAX + 1] = {0}, start = 0;
    for (int q = 1; q < t->place->size; q++)
        bounds[q] = bounds[q - 1] + (int64_t)all_draw(t, (uint64_t)(b->count - bounds[q - 1]) + 1);
    bounds[t->place->size] = b->count;
    int64_t from = bounds[t->place->rank], to = bounds[t->place->rank + 1];
    for (int32_t i = 0; i < b->npieces; i++) /* out of place: a share lands at the beginning of out */
        if (b->pieces[i].out != NULL && j.outs[i] == j.ins[i])
            b->pieces[i].out = j.outs[i] = calloc(1, (size_t)b->pieces[i].count * hc_dtype_size(b->dtype) + 1);
    UNTIL_DONE(t, t->node->ops->scatter(t->node, b, bounds));
    for (int32_t i = 0; i < b->npieces; start += b->pieces[i++].count) {
        int64_t first = from > start ? from : start, end = start + b->pieces[i].count;
        int64_t last = to < end ? to : end;
        if (b->pieces[i].out != NULL && first < last)
            check_piece(t, &j, i, first - start, last - first, b->pieces[i].out);
    }
    release(&j);
}

/* ---- exchange ------------------------------------------------------------------------------------ */

static uint8_t stream_byte(uint64_t s, int q, int64_t i) {
    return (uint8_t)(mix(s + (uint64_t)q * 77) + (uint64_t)i * 31 + (uint64_t)(i >> 8));
}

static void test_exchange(tester *t) {
    uint64_t s = all_draw(t, UINT64_MAX);
    int size = t->place->size, me = t->place->rank, shape = (int)all_draw(t, 4);
    int64_t lengths[RANKS_MAX] = {0};
    hc_stream_read want[RANKS_MAX];
    int root = (int)all_draw(t, (uint64_t)size); /* shape 0: a broadcast; 1: all of all; 2: parts;
                                                    3: parts of equal lengths */
    for (int q = 0; q < size; q++)
        lengths[q] = shape == 0 && q != root ? 0
                     : shape == 3 && q       ? lengths[0]
                                             : (int64_t)all_draw(t, all_draw(t, 2) ? 3000 : 3000000);
    uint8_t *mine = malloc((size_t)lengths[me] + 1);
    for (int64_t i = 0; i < lengths[me]; i++)
        mine[i] = stream_byte(s, me, i);
    for (int q = 0; q < size; q++) {
        int64_t from = shape >= 2 ? (int64_t)draw(&t->own, (uint64_t)lengths[q] + 1) : 0;
        int64_t n = shape >= 2 ? (int64_t)draw(&t->own, (uint64_t)(lengths[q] - from) + 1) : lengths[q];
        int none = shape >= 2 && draw(&t->own, 4) == 0;
        want[q] = (hc_stream_read){none ? NULL : calloc(1, (size_t)n + 1), from, n};
    }
    int64_t first = (int64_t)draw(&t->own, (uint64_t)lengths[me] + 1), second = lengths[me] - first;
    hc_stream_part parts[] = {{NULL, 0}, {mine, first}, {NULL, 0}, {mine + first, second}};
    UNTIL_DONE(t, t->node->ops->exchange(t->node, parts, 4, want, lengths, 1));
    for (int q = 0; q < size; q++) {
        for (int64_t i = 0; want[q].out != NULL && i < want[q].bytes; i++)
            CHECK(((uint8_t *)want[q].out)[i] == stream_byte(s, q, want[q].offset + i),
                  "rank %d: byte %lld of the stream of rank %d (shape %d)", me, (long long)(want[q].offset + i), q,
                  shape);
        free(want[q].out);
    }
    free(mine);
}

/* A rank that only gives runs ahead: it ends some exchanges before the others begin the first of them. */
static void test_ahead(tester *t) {
    uint64_t s = all_draw(t, UINT64_MAX), words[HC_NODE_WORDS] = {++t->aheads}, seen[HC_NODE_WORDS];
    int size = t->place->size, me = t->place->rank, root = (int)all_draw(t, (uint64_t)size);
    int64_t lengths[RANKS_MAX] = {0}, length = lengths[root] = 1 + (int64_t)all_draw(t, 70000);
    uint8_t *bytes = malloc((size_t)length);
    for (int begun = me == root; !begun; sched_yield())
        begun = hc_node_control_published(t->place->node_control, seen) && seen[0] >= words[0];
    for (int turn = 0; turn < 3; turn++) {
        hc_stream_read want[RANKS_MAX] = {0};
        for (int64_t i = 0; i < length; i++)
            bytes[i] = me == root ? stream_byte(s, turn, i) : 0;
        if (me != root)
            want[root] = (hc_stream_read){bytes, 0, length};
        hc_stream_part mine = {bytes, lengths[me]};
        UNTIL_DONE(t, t->node->ops->exchange(t->node, &mine, 1, want, lengths, size - 1));
        for (int64_t i = 0; i < length; i++)
            CHECK(bytes[i] == stream_byte(s, turn, i), "rank %d: byte %lld of exchange %d", me, (long long)i, turn);
    }
    if (me == root)
        hc_node_control_publish(t->place->node_control, words, 1);
    free(bytes);
}

/* ---- the program --------------------------------------------------------------------------------- */

static void body(rank_place *place) {
    tester t = {.place = place, .shared = seed, .own = mix(seed) + (uint64_t)place->rank};
    int32_t locals[RANKS_MAX];
    for (int q = 0; q < place->size; q++)
        locals[q] = q;
    int status = hc_shm_node_new(place->segment, place->node_control, locals, place->rank, place->size, &t.node);
    CHECK(status == 0, "node: %d", status);
    int reads_from = (int)draw(&t.own, 4) * rounds_to_run / 8; /* before that, streams are not read where they lie */
    for (int round = 0; round < rounds_to_run; round++) {
        if (round == reads_from)
            hc_node_control_read_memory(place->node_control);
        void (*const tests[])(tester *) = {test_allreduce, test_allreduce, test_allreduce,
                                           test_scatter,   test_exchange,  test_ahead};
        hc_node_control_set_stores(place->node_control, (int)draw(&t.own, 3)); /* changes no result */
        tests[all_draw(&t, sizeof tests / sizeof *tests)](&t);
    }
    t.node->ops->free(t.node);
}

int main(int argc, char **argv) {
    CHECK(argc >= 5, "usage: node_contract threads|processes SIZE SEED ROUNDS [DELAY]");
    seed = mix(strtoull(argv[3], NULL, 10) + 1);
    rounds_to_run = atoi(argv[4]);
    with_delays = argc > 5 && atoi(argv[5]);
    ranks_run(argv[1], atoi(argv[2]), hc_shm_bytes(atoi(argv[2])), body);
    return 0;
}
