/* SPDX-License-Identifier: Apache-2.0
 *
 * reduces.c - reduces between nodes over the local net, all members in one thread, against sums in float64.
 *
 *     reduces          1 to 40 members, all roots, splits into stages, the tree, in order; types, reductions, lengths
 *     reduces choices  the form that the model chooses, against formulae of the textbooks
 */
#include "transport/net/members.h"

enum { IN_ORDER = -2, TREE = -1 }; /* or the number of a split */

typedef struct test_case {
    int32_t n, root, form;
    int64_t count;
    int dtype, exact;
    hc__reduction reduction;
    uint64_t seed;
} test_case;

static const hc__stages *stages_of(const test_case *c) {
    return c->form >= 0 && c->n > 2 ? &splits.stages[c->form] : NULL;
}

static char *make_input(const test_case *c, int32_t member, int channel) {
    size_t bytes = (size_t)c->count * hc_dtype_size(c->dtype);
    char *data = malloc(bytes + 1);
    fill_random(data, c->dtype, c->count, c->seed + (uint64_t)(member * CHANNELS + channel));
    data[bytes] = 0x5a;
    return data;
}

static void start(const test_case *c, hc__channel *channel, char *data) {
    hc__way way = {c->root, 1, stages_of(c)};
    int status = c->form == IN_ORDER
                     ? hc__net_reduce_in_order_start(channel, data, c->count, c->dtype, c->reduction, c->root)
                     : hc__net_reduce_start(channel, data, c->count, c->dtype, c->reduction, way, c->exact);
    CHECK(status == HC_OK, "start: %s", hc_status_name(status));
}

/* ---- expected values --------------------------------------------------------------------------------------- */

/* A complex sum is a sum of twice as many numbers. */
static int real_of(int dtype) {
    return dtype == HC_COMPLEX64 ? HC_FLOAT32 : dtype == HC_COMPLEX128 ? HC_FLOAT64 : dtype;
}

/* The roundings to the type, as in an allreduce: one, or one per stage where 16-bit partial sums are sent. */
static int roundings(const test_case *c) {
    int adds = c->reduction.reduction == HC_SUM || c->reduction.reduction == HC_AVERAGE;
    const hc__stages *s = stages_of(c);
    return s && adds && !c->exact ? s->depth : 1;
}

/* |result - exact| <= the roundings to the type, and n roundings of the accumulation. */
static void check_float(const test_case *c, char *const *inputs, const char *found) {
    int reduction = c->reduction.reduction, real = real_of(c->dtype), often = roundings(c) > 1;
    int64_t n = real == c->dtype ? c->count : 2 * c->count;
    double *wide[MEMBERS], *result = malloc((size_t)n * 8 + 8), acc = half_ulp(hc__accumulation_dtype(real));
    double tiny = (roundings(c) + 1) * (real == HC_FLOAT16 ? 0x1p-24 : 1e-38);
    for (int32_t q = 0; q < c->n; q++) {
        wide[q] = malloc((size_t)n * 8 + 8);
        hc_host_convert(wide[q], HC_FLOAT64, inputs[q], real, n, 1.0);
    }
    hc_host_convert(result, HC_FLOAT64, found, real, n, 1.0);
    for (int64_t i = 0; i < n; i++) {
        double sum = wide[0][i], size = fabs(sum);
        for (int32_t q = 1; q < c->n; q++) {
            double x = wide[q][i];
            size = reduction == HC_PRODUCT ? size * fabs(x) : size + fabs(x);
            sum = reduction == HC_PRODUCT ? sum * x
                  : reduction == HC_MIN   ? fmin(sum, x)
                  : reduction == HC_MAX   ? fmax(sum, x)
                                          : sum + x;
        }
        sum /= c->reduction.divisor;
        size /= c->reduction.divisor;
        double room = half_ulp(real) * roundings(c) * (often ? size : fabs(sum)) * 1.01 + c->n * acc * size + tiny;
        CHECK(fabs(result[i] - sum) <= room, "%s of %s, %d members, root %d, form %d, element %lld: %.17g, not %.17g",
              hc_reduction_name(reduction), hc_dtype_name(c->dtype), c->n, c->root, c->form, (long long)i, result[i],
              sum);
    }
    for (int32_t q = 0; q < c->n; q++)
        free(wide[q]);
    free(result);
}

/* Other types are exact: the kernel's own reduction of all is the reference. */
static void check_exact(const test_case *c, char *const *inputs, const char *found) {
    size_t bytes = (size_t)c->count * hc_dtype_size(c->dtype);
    char *expected = malloc(bytes + 1);
    hc_host_reduce(expected, c->dtype, (const void *const *)inputs, c->n, c->dtype, c->reduction.reduction, c->count,
                   1.0, c->reduction.divisor);
    CHECK(!memcmp(expected, found, bytes), "%s of %s, %d members, root %d, form %d, %lld elements: other bits",
          hc_reduction_name(c->reduction.reduction), hc_dtype_name(c->dtype), c->n, c->root, c->form,
          (long long)c->count);
    free(expected);
}

static void check_root(const test_case *c, int channel, const char *found) {
    char *inputs[MEMBERS];
    for (int32_t q = 0; q < c->n; q++)
        inputs[q] = make_input(c, q, channel);
    if (c->n == 1) /* its data stays as it is */
        CHECK(!memcmp(found, inputs[0], (size_t)c->count * hc_dtype_size(c->dtype)), "one member: other bytes");
    else if (c->dtype >= HC_FLOAT16 && c->reduction.reduction <= HC_PRODUCT && c->form != IN_ORDER)
        check_float(c, inputs, found);
    else
        check_exact(c, inputs, found);
    for (int32_t q = 0; q < c->n; q++)
        free(inputs[q]);
}

/* ---- cases --------------------------------------------------------------------------------------------------- */

/* Two reduces at once, one in each channel: each has other data, and the members do not wait. */
static void run_case(const test_case *c) {
    char *data[MEMBERS][CHANNELS];
    for (int32_t q = 0; q < c->n; q++) {
        sent_bytes[q] = received_bytes[q] = sent[q] = received[q] = 0;
        for (int i = 0; i < CHANNELS; i++) {
            data[q][i] = make_input(c, q, i);
            start(c, &channels[q][i], data[q][i]);
        }
    }
    drive(c->n, c->seed);
    for (int i = 0; i < CHANNELS; i++) {
        check_root(c, i, data[c->root][i]);
        for (int32_t q = 0; q < c->n; q++) {
            CHECK(data[q][i][(size_t)c->count * hc_dtype_size(c->dtype)] == 0x5a, "a byte behind the end was written");
            free(data[q][i]);
        }
    }
}

/* Messages that a member receives: of the others of its groups, and of a member without a position in its first group;
 * then in each stage in which its group's block is its own, because it has the root's digits in this and all later
 * stages. A root without a position gets parts of its group only. */
static int messages(const hc__stages *s, int32_t root, int32_t member) {
    int32_t mine[HC__STAGES_MOST], its[HC__STAGES_MOST], other[HC__STAGES_MOST];
    if (!digits_of(s, member, mine))
        return member == root ? s->radix[0] : 0;
    int root_has_none = !digits_of(s, root, its), n = 0, gathers = 1;
    if (root_has_none)
        (void)digits_of(s, root - s->radix[0], its); /* the first of its group */
    int32_t last = member - mine[0] + s->radix[0];   /* behind the positions of its group */
    n += s->extra > 0 && last < splits.n && !digits_of(s, last, other);
    for (int32_t k = s->depth - 1; k >= 0; k--) {
        gathers = gathers && mine[k] == its[k] && !(k == 0 && root_has_none);
        n += (s->radix[k] - 1) * (1 + gathers);
    }
    return n;
}

/* Enough elements that no part is empty, all parts equal. Without members beside the positions, all send (n - 1)/n of
 * the data for the sums, and the root gets as much again. */
static void check_messages(const test_case *c) {
    const hc__stages *s = stages_of(c);
    int64_t once = c->count * (int64_t)hc_dtype_size(c->dtype) * (c->n - 1) / c->n, all = 0;
    for (int32_t q = 0; q < c->n; q++) {
        int expected = CHANNELS * messages(s, c->root, q);
        CHECK(received[q] == expected, "%d members, root %d: member %d received %d messages, not %d", c->n, c->root, q,
              received[q], expected);
        CHECK(s->extra || received_bytes[q] <= CHANNELS * 2 * once, "member %d received %lld bytes", q,
              (long long)received_bytes[q]);
        all += sent_bytes[q];
    }
    CHECK(s->extra || received_bytes[c->root] == CHANNELS * 2 * once, "the root of %d received %lld bytes", c->n,
          (long long)received_bytes[c->root]);
    CHECK(s->extra || sent_bytes[c->root] == CHANNELS * once, "the root of %d sent %lld bytes", c->n,
          (long long)sent_bytes[c->root]);
    CHECK(s->extra || all <= CHANNELS * once * (c->n + s->depth), "all of %d sent %lld bytes", c->n, (long long)all);
}

/* A mean of values near the end of the type's range is in range, although their sum is not. */
static void check_range(const test_case *c) {
    static const double most[] = {
        [HC_FLOAT16] = 6e4, [HC_BFLOAT16] = 3e38, [HC_FLOAT32] = 3e38, [HC_FLOAT64] = 1.7e308};
    double values[MEMBERS], found[MEMBERS];
    char *data[MEMBERS][CHANNELS];
    for (int64_t k = 0; k < c->count; k++)
        values[k] = most[c->dtype];
    for (int32_t q = 0; q < c->n; q++)
        for (int i = 0; i < CHANNELS; i++) {
            data[q][i] = malloc((size_t)c->count * 8);
            hc_host_convert(data[q][i], c->dtype, values, HC_FLOAT64, c->count, 1.0);
            start(c, &channels[q][i], data[q][i]);
        }
    drive(c->n, c->seed);
    hc_host_convert(found, HC_FLOAT64, data[c->root][0], c->dtype, c->count, 1.0);
    for (int64_t k = 0; k < c->count; k++)
        CHECK(fabs(found[k] - values[k]) <= (c->n + 2 * roundings(c)) * half_ulp(c->dtype) * values[k],
              "a mean of %s, %d members, form %d: %g, not %g", hc_dtype_name(c->dtype), c->n, c->form, found[k],
              values[k]);
    for (int32_t q = 0; q < c->n; q++)
        for (int i = 0; i < CHANNELS; i++)
            free(data[q][i]);
}

/* Every type and reduction in turn. */
static void choose_types(test_case *c, uint64_t *random) {
    do {
        c->dtype = (int)below(random, HC_DTYPE_COUNT);
        c->reduction = (hc__reduction){(int)below(random, HC_REDUCTION_COUNT), 1.0};
    } while (!hc_reduction_defined(c->reduction.reduction, c->dtype) ||
             (c->reduction.reduction == HC_PRODUCT && c->dtype >= HC_COMPLEX64)); /* no sum of real numbers */
    if (c->reduction.reduction == HC_AVERAGE) /* of members that count once, or three halves times */
        c->reduction.divisor = c->dtype >= HC_FLOAT16 && below(random, 2) ? 1.5 * c->n : c->n;
    c->exact = (int)below(random, 2);
}

/* Runs all cases of 1 to `most` members. */
static int run_all(int32_t most) {
    static const int64_t counts[] = {1, 2, 7, 39, 101, 1000, 4097};
    uint64_t random = 1;
    int cases = 0;
    for (int32_t n = 1; n <= most; n++) {
        make_nets(n);
        for (int32_t root = 0; root < n; root++)
            for (int32_t form = IN_ORDER; form < splits.count; form++) {
                test_case c = {.n = n, .root = root, .form = form};
                for (int k = 0; k < 2; k++, cases++) {
                    c.count = counts[below(&random, (int64_t)(sizeof counts / sizeof *counts) - (k == 0))];
                    c.seed = next_random(&random);
                    choose_types(&c, &random);
                    run_case(&c);
                }
                if (!stages_of(&c))
                    continue;
                c = (test_case){n, root, form, 64 * n, HC_FLOAT32, 0, {HC_SUM, 1.0}, c.seed};
                run_case(&c);
                check_messages(&c);
            }
        for (int32_t form = TREE; form < splits.count && n > 1; form++)
            for (int dtype = HC_FLOAT16; dtype <= HC_FLOAT64; dtype++) {
                test_case c = {
                    n, (int32_t)below(&random, n), form, n, dtype, (int)below(&random, 2), {HC_AVERAGE, n}, random};
                check_range(&c);
            }
        drop_nets(n);
    }
    return cases;
}

/* ---- choices ------------------------------------------------------------------------------------------------- */

/* Where the formulae say that one form takes half of the other's time, it must be chosen; but up to 8 members have no
 * stages. In the tree, 16-bit floats travel as float32. */
static void check_choice(const hc__net_model *m, int32_t n, int64_t bytes, int dtype) {
    hc__splits of;
    hc__splits_of(n, 0, &of);
    int64_t size = (int64_t)hc_dtype_size(dtype), most = 512 << 10;
    hc__sum sum = {bytes / size, (uint8_t)dtype, HC_SUM, 0, 0};
    const hc__stages *stages = hc__reduce_stages(m, &of, &sum, hc__tree_segment(m, n, bytes, most), most);
    hc__net_model adds = {m->alpha, m->beta + 2 * m->gamma, 0};
    double tree = best_tree(&adds, n, (double)(bytes / size * (int64_t)hc_dtype_size(hc__accumulation_dtype(dtype))));
    double ours = scattered(m, n, (double)bytes);
    CHECK(stages || n <= 8 || ours > 0.5 * tree, "%d members, %lld bytes: up the tree, in %g us; in stages %g us", n,
          (long long)bytes, 1e6 * tree, 1e6 * ours);
    CHECK(!stages || (n > 8 && tree > 0.6 * ours), "%d members, %lld bytes: in stages, in %g us; up the tree %g us", n,
          (long long)bytes, 1e6 * ours, 1e6 * tree);
    printf("%d %lld %s %s %.1f %.1f\n", n, (long long)bytes, hc_dtype_name(dtype), stages ? "stages" : "tree",
           1e6 * tree, 1e6 * ours);
}

static void check_choices(void) {
    const hc__net_model models[] = {{2e-5, 1e-9, 1e-10}, {1.4e-6, 1.0 / 11.5e9, 0}, {1e-4, 8e-8, 1e-10}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int32_t n = 2; n <= 4096; n *= 2)
            for (int64_t bytes = 64; bytes <= 256 << 20; bytes *= 4) {
                check_choice(&models[i], n, bytes, HC_FLOAT32);
                check_choice(&models[i], n, bytes, HC_FLOAT16);
            }
}

int main(int argc, char **argv) {
    int32_t most = argc > 1 ? atoi(argv[1]) : MEMBERS;
    if (most > 0)
        printf("%d cases\n", run_all(most < MEMBERS ? most : MEMBERS));
    else
        check_choices();
    return 0;
}
