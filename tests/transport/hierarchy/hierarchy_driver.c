/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchy_driver.c - all operations over emulated nodes, ranks as threads, against a reference.
 *
 *     hierarchy_driver LAYOUT SEED CASES           LAYOUT: the node of each rank, as in 0,0,1,1
 *     hierarchy_driver LAYOUT SEED CASES ALGORITHM CHUNK_BYTES RAILS [OPERATION]
 *     hierarchy_driver LAYOUT SEED bytes COUNT     one float32 allreduce; prints what each stage moved
 *     hierarchy_driver LAYOUT SEED scattered COUNT the same of a reducescatter of COUNT rows
 *     hierarchy_driver LAYOUT SEED reduced COUNT   the same of a reduce to the last rank
 *     hierarchy_driver LAYOUT SEED bits CHUNK      prints a hash of deterministic sums, fused and not
 *     hierarchy_driver LAYOUT SEED abandon OPERATION   one rank never comes; the others give up
 *
 * Every rank draws the same cases from the seed, makes everybody's input again, and checks its own results.
 */
#include "transport/any_stages.h"
#include "transport/hierarchy/cases.h"

static uint64_t seed;
static int cases;
static int64_t counted;
static int32_t missing = -1; /* a rank that never comes */
static int scatters, reduces;

/* ---- inputs ------------------------------------------------------------------------------------------- */

static int64_t input_rows(const test_case *c, int32_t piece, int32_t rank) {
    const shape *s = &c->shapes[piece];
    int64_t rows = 0;
    if (c->operation == HC_ALLGATHER || c->operation == HC_GATHER)
        return rank == c->joined ? 0 : s->rows_of[rank];
    if (c->operation == HC_SCATTER && rank != c->root)
        return 0;
    if (c->operation != HC_ALLTOALL && c->operation != HC_SCATTER)
        return s->rows;
    for (int32_t r = 0; r < size; r++)
        rows += rank == c->joined ? 0 : s->send[rank][r];
    return rows;
}

/* Fresh memory with what `rank` gives; neutral elements where it has joined. */
static char *make_input(const test_case *c, int32_t piece, int32_t rank) {
    int64_t n = input_rows(c, piece, rank) * c->shapes[piece].row;
    char *data = malloc((size_t)n * hc_dtype_size(c->dtype) + 16);
    fill_random(data, c->dtype, n, c->seed + (uint64_t)(rank * MAX_PIECES + piece));
    if (rank == c->joined)
        hc_host_neutral(data, c->dtype, c->reduction == HC_AVERAGE ? HC_SUM : c->reduction, n);
    return data;
}

/* ---- references ------------------------------------------------------------------------------------------ */

static void expect_close(const test_case *c, const void *result, double *const *wide, int64_t at, int64_t n) {
    double *got = malloc((size_t)n * 8 + 8);
    double tiny = c->wire == HC_FLOAT16 ? 0x1p-22 : 1e-37, u = half_ulp(c->wire);
    hc_host_convert(got, HC_FLOAT64, result, c->dtype, n, 1.0);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, magnitude = 0;
        for (int32_t q = 0; q < size; q++) {
            double x = wide[q][at + i] * c->scale / (double)c->divisor, s = sum;
            int first = q == 0;
            sum = first                        ? x
                  : c->reduction == HC_PRODUCT ? s * x
                  : c->reduction == HC_MIN     ? fmin(s, x)
                  : c->reduction == HC_MAX     ? fmax(s, x)
                                               : s + x;
            magnitude = c->reduction == HC_PRODUCT ? (first ? fabs(x) : magnitude * fabs(x)) : magnitude + fabs(x);
        }
        double room = c->reduction == HC_PRODUCT ? 2 * size + 4 : 5;
        CHECK(fabs(got[i] - sum) <= room * u * magnitude + tiny, "%s of %s (%s), element %lld: %.17g, not %.17g",
              hc_reduction_name(c->reduction), hc_dtype_name(c->dtype), hc_dtype_name(c->wire), (long long)(at + i),
              got[i], sum);
    }
    free(got);
}

/* Elements [at, at + n) of the reduction of a piece over the first `ranks` ranks; a scan's bits are those of one
 * reduction in rank order. */
static void check_reduced(const test_case *c, int32_t piece, const void *result, int64_t at, int64_t n, int32_t ranks) {
    int64_t total = c->shapes[piece].rows * c->shapes[piece].row;
    size_t width = hc_dtype_size(c->dtype);
    void *inputs[MAX_RANKS];
    double *wide[MAX_RANKS];
    for (int32_t q = 0; q < size; q++) {
        inputs[q] = make_input(c, piece, q);
        wide[q] = malloc((size_t)total * 8 + 8);
        if (is_float(c->dtype))
            hc_host_convert(wide[q], HC_FLOAT64, inputs[q], c->dtype, total, 1.0);
    }
    if (is_float(c->dtype) && c->reduction <= HC_PRODUCT && !is_scan(c)) {
        expect_close(c, result, wide, at, n);
    } else {
        char *expected = malloc((size_t)total * width + 16);
        if (ranks == 0)
            hc_host_neutral(expected, c->dtype, c->reduction, total);
        else
            hc_host_reduce(expected, c->dtype, (const void *const *)inputs, ranks, c->dtype, c->reduction, total,
                           c->scale, (double)c->divisor);
        CHECK(!memcmp(result, expected + (size_t)at * width, (size_t)n * width), "%s: wrong %s of %s",
              hc_operation_name(c->operation), hc_reduction_name(c->reduction), hc_dtype_name(c->dtype));
        free(expected);
    }
    for (int32_t q = 0; q < size; q++) {
        free(inputs[q]);
        free(wide[q]);
    }
}

/* What rank `me` must have received of a piece, from rank q: rows, and where they begin in q's input. */
static int64_t expected_rows(const test_case *c, int32_t piece, int32_t q, int32_t me, int64_t *begin) {
    const shape *s = &c->shapes[piece];
    *begin = 0;
    if (q == c->joined || (c->operation == HC_GATHER && me != c->root) || (c->operation == HC_SCATTER && q != c->root))
        return 0;
    if (c->operation == HC_ALLGATHER || c->operation == HC_GATHER)
        return s->rows_of[q];
    if (s->evenly) {
        *begin = hc_share_begin(input_rows(c, piece, q), size, me);
        return hc_share(input_rows(c, piece, q), size, me);
    }
    for (int32_t r = 0; r < me; r++)
        *begin += s->send[q][r];
    return s->send[q][me];
}

/* Whether the caller brings the memory of rank me's result, and whether that has another size than the result. */
static int has_room(const test_case *c, int32_t me) {
    if (me == c->joined || !hc_operation_gets(c->operation, c->root, me))
        return 0;
    return !hc_operation_has(c->operation, HC_OP_RESULT_ALLOCATED) || c->in_place;
}

/* Rooms that all ranks hear of: a wrong one of the first piece refuses that piece on all ranks. */
static int is_refused(const test_case *c, int32_t piece) {
    return hc_operation_has(c->operation, HC_OP_RESULT_ALLOCATED) && piece == 0 && c->wrong_room >= 0 &&
           has_room(c, c->wrong_room);
}

static int has_wrong_room(const test_case *c, int32_t me) {
    return c->operation == HC_REDUCESCATTER && me == c->wrong_room && has_room(c, me);
}

static int64_t result_rows(const test_case *c, int32_t piece, int32_t me) {
    int64_t rows = 0, begin;
    if (c->operation == HC_REDUCESCATTER)
        return hc_share(c->shapes[piece].rows, size, me);
    if (!hc_operation_has(c->operation, HC_OP_RESULT_ALLOCATED))
        return c->shapes[piece].rows;
    for (int32_t q = 0; q < size; q++)
        rows += expected_rows(c, piece, q, me, &begin);
    return rows;
}

/* Whether recv_rows is a result. */
static int counts_rows(const test_case *c, int32_t me) {
    return c->operation != HC_SCATTER && (c->operation != HC_GATHER || me == c->root);
}

static int64_t check_gathered(const test_case *c, int32_t piece, int32_t me, const hc_piece *p) {
    int64_t row_bytes = p->row * (int64_t)hc_dtype_size(c->dtype), rows = 0;
    for (int32_t q = 0; q < size; q++) {
        int64_t begin, here = expected_rows(c, piece, q, me, &begin);
        char *input = make_input(c, piece, q);
        CHECK(!counts_rows(c, me) || p->recv_rows[q] == here, "rows from %d: %lld", q, (long long)p->recv_rows[q]);
        if (p->out && !has_wrong_room(c, me))
            CHECK(!memcmp((char *)p->out + rows * row_bytes, input + begin * row_bytes, (size_t)(here * row_bytes)),
                  "%s: other bytes from rank %d", hc_operation_name(c->operation), q);
        rows += here;
        free(input);
    }
    CHECK(p->out_rows == rows, "rows: %lld, not %lld", (long long)p->out_rows, (long long)rows);
    return rows;
}

/* ---- one rank, one case ---------------------------------------------------------------------------------------- */

static void make_piece(const test_case *c, int32_t i, int32_t me, hc_piece *p) {
    int joined = me == c->joined;
    int64_t row_bytes = c->shapes[i].row * (int64_t)hc_dtype_size(c->dtype);
    *p = (hc_piece){.row = c->shapes[i].row, .scale = c->scale, .drop = (uint8_t)joined};
    p->rows = input_rows(c, i, me);
    p->count = p->rows * p->row;
    p->in = joined ? NULL : make_input(c, i, me);
    p->send_rows = joined || c->shapes[i].evenly ? NULL : c->shapes[i].send[me];
    if (c->operation == HC_SCATTER && me != c->root) {
        free((void *)(uintptr_t)p->in);
        p->in = NULL;
        p->send_rows = NULL;
    }
    p->recv_rows = malloc(MAX_RANKS * sizeof *p->recv_rows);
    if (!has_room(c, me))
        return;
    p->out_rows = result_rows(c, i, me) + (is_refused(c, i) && me == c->wrong_room);
    p->out_capacity = p->out_rows * row_bytes;
    if (has_wrong_room(c, me))
        p->out_capacity += row_bytes + 1;
    p->out = c->in_place && hc_operation_has(c->operation, HC_OP_ELEMENTWISE) ? (void *)(uintptr_t)p->in
                                                                              : malloc((size_t)p->out_capacity + 16);
    if (is_refused(c, i))
        memset(p->out, 0x5a, (size_t)p->out_capacity);
    if (c->operation == HC_BROADCAST && me != c->root) {
        free((void *)(uintptr_t)p->in);
        p->in = NULL;
    }
}

/* The same words on all ranks, and no byte of a result was written. */
static void check_refused(const test_case *c, const hc_piece *p) {
    CHECK(p->status == HC_RESULT_SIZE && p->why && !strncmp(p->why, "has an out of ", 14), "%s: %s",
          hc_status_name(p->status), p->why ? p->why : "");
    CHECK(p->refused_by == c->wrong_room, "refused by %d, not by %d", p->refused_by, c->wrong_room);
    for (int64_t i = 0; p->out && i < p->out_capacity; i++)
        CHECK(((const char *)p->out)[i] == 0x5a, "byte %lld was written", (long long)i);
    free(p->why);
}

static void check_piece(const test_case *c, int32_t i, int32_t me, const hc_piece *p) {
    int64_t rows = c->shapes[i].rows;
    CHECK(is_refused(c, i) || (p->status == HC_OK && !p->why), "refused");
    if (is_refused(c, i)) {
        check_refused(c, p);
    } else if (hc_operation_has(c->operation, HC_OP_RESULT_ALLOCATED)) {
        check_gathered(c, i, me, p);
        int none = me == c->joined || (c->operation == HC_GATHER && me != c->root);
        CHECK((p->out == NULL) == none, "a result");
    } else if (!p->out) {
        return;
    } else if (c->operation == HC_BROADCAST) {
        char *expected = make_input(c, i, c->root);
        CHECK(!memcmp(p->out, expected, (size_t)(rows * p->row) * hc_dtype_size(c->dtype)), "broadcast");
        free(expected);
    } else if (is_scan(c)) {
        check_reduced(c, i, p->out, 0, rows, me + !hc_operation_has(c->operation, HC_OP_EXCLUSIVE));
    } else if (hc_operation_has(c->operation, HC_OP_ELEMENTWISE)) {
        check_reduced(c, i, p->out, 0, rows, size);
    } else if (!has_wrong_room(c, me)) {
        check_reduced(c, i, p->out, hc_share_begin(rows, size, me) * p->row, result_rows(c, i, me) * p->row, size);
    }
}

static void run_case(rank_state *s, const test_case *c) {
    hc_piece pieces[MAX_PIECES];
    hc_batch batch = {.operation = (uint8_t)c->operation,
                      .reduction = (uint8_t)c->reduction,
                      .dtype = (uint8_t)c->dtype,
                      .wire_dtype = (uint8_t)c->wire,
                      .deterministic = (uint8_t)c->deterministic,
                      .equal_rows = (uint8_t)c->equal_rows,
                      .root = c->root,
                      .divisor = c->divisor,
                      .npieces = c->npieces,
                      .pieces = pieces};
    for (int32_t i = 0; i < c->npieces; i++) {
        make_piece(c, i, s->rank, &pieces[i]);
        batch.count += pieces[i].count;
    }
    int status = run_batch(s, &batch);
    CHECK(status == (has_wrong_room(c, s->rank) ? HC_RESULT_SIZE : HC_DONE), "%s: %s (%s)",
          hc_operation_name(c->operation), hc_status_name(status), s->data->text ? s->data->text : "");
    for (int32_t i = 0; i < c->npieces; i++) {
        check_piece(c, i, s->rank, &pieces[i]);
        if (pieces[i].out != pieces[i].in)
            hc_result_free(pieces[i].out);
        free((void *)(uintptr_t)pieces[i].in);
        free(pieces[i].recv_rows);
    }
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static void run_cases(int32_t rank) {
    rank_state s;
    uint64_t random = seed;
    make_rank(&s, rank, seed * 31 + (uint64_t)rank, nets[rank]);
    for (int i = 0; i < cases; i++) {
        test_case c;
        choose_case(&c, &random);
        run_case(&s, &c);
    }
    drop_rank(&s);
}

static void run_bytes(int32_t rank) {
    rank_state s;
    float *data = malloc((size_t)counted * sizeof *data + 4);
    for (int64_t i = 0; i < counted; i++)
        data[i] = (float)(rank + i % 7);
    make_rank(&s, rank, seed * 31 + (uint64_t)rank, nets[rank]);
    hc_piece piece;
    hc_batch batch = scatters ? scattered_sum_of(&piece, data, counted) : sum_of(&piece, data, counted);
    if (reduces) {
        batch.operation = HC_REDUCE;
        batch.root = size - 1;
        piece.out = rank == batch.root ? data : NULL;
    }
    CHECK(run_batch(&s, &batch) == HC_DONE, "%s", hc_operation_name(batch.operation));
    int64_t begin = scatters ? rank * (counted / size) + (rank < counted % size ? rank : counted % size) : 0;
    int64_t n = scatters ? counted / size + (rank < counted % size) : counted;
    for (int64_t i = 0; piece.out && i < n; i++)
        CHECK(((float *)piece.out)[i] == (float)(size * (size - 1) / 2 + size * ((begin + i) % 7)), "element %lld",
              (long long)i);
    if (scatters)
        hc_result_free(piece.out);
    printf("%d %llu %llu %llu %llu\n", rank, (unsigned long long)s.node->packed_bytes,
           (unsigned long long)s.node->reduced_bytes, (unsigned long long)s.node->spread_bytes,
           (unsigned long long)nets[rank]->sent_bytes);
    drop_rank(&s);
    free(data);
}

/* Three float32 arrays on a float16 wire, in one batch or one by one: a hash of what rank 0 got. */
static uint64_t sum_hash(rank_state *s, int fused) {
    static const int64_t counts[3] = {70001, 13, 40000};
    hc_piece pieces[3];
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < 3; i++) {
        void *data = malloc((size_t)counts[i] * 4);
        fill_random(data, HC_FLOAT32, counts[i], seed + (uint64_t)(s->rank * 3 + i));
        pieces[i] = (hc_piece){.in = data, .out = data, .count = counts[i], .row = 1, .scale = 1.0};
    }
    for (int i = 0; i < 3; i += fused ? 3 : 1) {
        hc_batch batch = {.operation = HC_ALLREDUCE,
                          .reduction = HC_AVERAGE,
                          .dtype = HC_FLOAT32,
                          .wire_dtype = HC_FLOAT16,
                          .deterministic = 1,
                          .root = -1,
                          .divisor = size,
                          .npieces = fused ? 3 : 1,
                          .pieces = &pieces[i]};
        for (int j = i; j < i + batch.npieces; j++)
            batch.count += counts[j];
        CHECK(run_batch(s, &batch) == HC_DONE, "allreduce");
    }
    for (int i = 0; i < 3; i++) {
        for (int64_t k = 0; k < counts[i] * 4; k++)
            hash = (hash ^ ((uint8_t *)pieces[i].out)[k]) * 1099511628211u;
        free(pieces[i].out);
    }
    return hash;
}

static void run_bits(int32_t rank) {
    rank_state s;
    make_rank(&s, rank, seed * 31 + (uint64_t)rank, nets[rank]);
    uint64_t fused = sum_hash(&s, 1), single = sum_hash(&s, 0);
    CHECK(fused == single, "other bits when fused");
    if (rank == 0)
        printf("%016llx\n", (unsigned long long)fused);
    drop_rank(&s);
}

static void run_abandon(int32_t rank) {
    rank_state s;
    static float data[MAX_RANKS][300000];
    int64_t splits[2 * MAX_RANKS];
    make_rank(&s, rank, seed * 31 + (uint64_t)rank, nets[rank]);
    hc_piece piece;
    hc_batch batch = rows_of(only, &piece, data[rank], 300000, splits);
    if (only == HC_ALLREDUCE)
        batch.wire_dtype = HC_FLOAT16;
    if (rank != missing) {
        int status = s.data->ops->start(s.data, &batch);
        for (int i = 0; i < 2000 && status >= 0 && status != HC_DONE; i++)
            status = s.data->ops->test(s.data);
        CHECK(status >= 0, "%s: %s", hc_operation_name(only), hc_status_name(status));
        CHECK(status != HC_DONE || only != HC_ALLREDUCE, "done without rank %d", missing);
        s.data->ops->abandon(s.data);
        if (status == HC_DONE && piece.out != data[rank])
            hc_result_free(piece.out);
    }
    drop_rank(&s);
}

int main(int argc, char **argv) {
    CHECK(argc > 3, "usage: see the head of this file");
    make_job(argv[1]);
    seed = strtoull(argv[2], NULL, 10);
    cases = atoi(argv[3]);
    counted = argc > 4 ? atoll(argv[4]) : 0;
    missing = size - 1;
    scatters = !strcmp(argv[3], "scattered");
    reduces = !strcmp(argv[3], "reduced");
    if (!strcmp(argv[3], "bits"))
        knobs.chunk_bytes = counted;
    if (cases > 0 && argc > 6)
        knobs = (hc_hierarchy_config){.algorithm = argv[4], .chunk_bytes = atoll(argv[5]), .rails = atoi(argv[6])};
    only = argc > 7 ? operation_named(argv[7]) : !strcmp(argv[3], "abandon") ? operation_named(argv[4]) : -1;
    for (int32_t r = 0; r < size; r++)
        nets[r]->message_bytes = seed % 2 ? 1000 : 0; /* long messages in pieces, or whole */
    int counts_bytes = !strcmp(argv[3], "bytes") || scatters || reduces;
    run_threads(size, cases > 0                  ? run_cases
                      : counts_bytes             ? run_bytes
                      : !strcmp(argv[3], "bits") ? run_bits
                                                 : run_abandon);
    drop_job();
    if (cases > 0)
        printf("%d cases\n", cases);
    return 0;
}
