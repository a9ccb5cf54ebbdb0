/* SPDX-License-Identifier: Apache-2.0
 *
 * net_driver.c - the algorithms between nodes over the local net, all members in one thread, against float64.
 *
 *     net_driver SEED CASES      random members (2 to 40), splits, types, reductions, lengths, algorithms, models,
 *                                channels, order of progress: an allreduce or a reduce-scatter into parts of any length
 *     net_driver SEED CASES cut  "direct" only: the same data in one piece and in two must give equal bits
 */
#include "transport/net/algorithms.h"
#include "transport/net_threads.h"

#define CHANNELS 3
#define MEMBERS 40

typedef struct test_case {
    int32_t n;
    int dtype;
    hc__means means;
    hc__net_model model;
    hc__splits splits;
    hc__reduction reduction;
    int64_t count, piece; /* piece: messages are cut to it */
    uint64_t seed;
    int64_t cut; /* > 0: the result must not depend on a cut there */
    int scatters;
    int64_t bounds[MEMBERS + 1];
} test_case;

static test_case now;
static hc_net *nets[MEMBERS];
static int32_t peers[MEMBERS];
static hc__team teams[MEMBERS];
static hc__channel channels[MEMBERS][CHANNELS];
static char *results[MEMBERS][CHANNELS];

static int is_float(int dtype) {
    return dtype >= HC_FLOAT16 && dtype <= HC_FLOAT64;
}

static uint64_t seed_of(int32_t rank, int channel) {
    return now.seed + (uint64_t)rank * 1000 + (uint64_t)channel;
}

/* Each member goes on when the random numbers say so; a message may be asked for long before it is sent. */
static void drive(void) {
    int left = now.n * CHANNELS, idle = 0;
    uint64_t random = now.seed;
    uint8_t done[MEMBERS][CHANNELS] = {{0}};
    while (left > 0) {
        int32_t q = (int32_t)below(&random, now.n), i = (int32_t)below(&random, CHANNELS);
        int status = done[q][i] ? HC_IDLE : hc__channel_test(&channels[q][i]);
        CHECK(status >= 0, "test: %s", hc_status_name(status));
        idle = status == HC_IDLE ? idle + 1 : 0;
        CHECK(idle < 100000, "%d operations do not end", left);
        if (status == HC_DONE) {
            done[q][i] = 1;
            left--;
        }
    }
}

static int start(hc__channel *channel, void *data, int64_t count) {
    if (now.scatters)
        return hc__reduce_scatter_start(channel, data, now.bounds, now.dtype, now.reduction, now.means);
    return hc__allreduce_start(channel, data, count, now.dtype, now.reduction, now.means);
}

static void start_member(int32_t rank) {
    size_t size = hc_dtype_size(now.dtype);
    peers[rank] = rank;
    teams[rank] = (hc__team){nets[rank], &hc_host_arithmetic, peers, now.n, rank, &now.splits};
    for (int i = 0; i < CHANNELS; i++) {
        results[rank][i] = malloc((size_t)now.count * size + 1);
        fill_random(results[rank][i], now.dtype, now.count, seed_of(rank, now.cut ? 0 : i));
        hc__channel_init(&channels[rank][i], &teams[rank], &now.model, i);
    }
    /* with a cut: channel 0 all, channels 1 and 2 the two parts of the same data, put together in place */
    for (int i = 0; i < CHANNELS; i++) {
        int64_t from = now.cut && i == 2 ? now.cut : 0;
        int64_t to = now.cut && i == 1 ? now.cut : now.count;
        char *data = results[rank][now.cut && i == 2 ? 1 : i] + (size_t)from * size;
        int status = start(&channels[rank][i], data, to - from);
        CHECK(status == HC_OK, "start: %s", hc_status_name(status));
    }
}

static hc__choice choice(void) {
    hc__sum sum = {now.count, (uint8_t)now.dtype, (uint8_t)now.reduction.reduction, (uint8_t)now.means.exact,
                   (uint8_t)now.scatters};
    return hc__net_choose(&now.model, &now.splits, now.means.algorithm, &sum);
}

/* Types that have no float64 reference are exact: the kernel's own sum of all is the reference. */
static void check_exact(int channel, char *const *inputs) {
    size_t bytes = (size_t)now.count * hc_dtype_size(now.dtype);
    char *expected = malloc(bytes + 1);
    hc_host_reduce(expected, now.dtype, (const void *const *)inputs, now.n, now.dtype, now.reduction.reduction,
                   now.count, 1.0, now.reduction.divisor);
    CHECK(!memcmp(expected, results[0][channel], bytes), "wrong %s of %s", hc_reduction_name(now.reduction.reduction),
          hc_dtype_name(now.dtype));
    free(expected);
}

/* The roundings to the type: one, or one per sum that is sent where partial sums travel as 16-bit floats. */
static int roundings(void) {
    hc__choice c = choice();
    if (!c.stages || c.kind != now.dtype || c.kind == hc__accumulation_dtype(now.dtype))
        return 1;
    return c.stages->depth + (now.scatters && c.stages->extra > 0);
}

/* |result - exact| <= the roundings to the type, and n roundings of the accumulation. */
static void check_float(int channel, char *const *inputs) {
    size_t n = (size_t)now.count;
    int reduction = now.reduction.reduction;
    double *wide = malloc(n * 8 + 8), *sum = calloc(n + 1, 8), *size = calloc(n + 1, 8), *result = malloc(n * 8 + 8);
    for (int32_t q = 0; q < now.n; q++) {
        hc_host_convert(wide, HC_FLOAT64, inputs[q], now.dtype, now.count, 1.0);
        for (size_t i = 0; i < n; i++) {
            double x = wide[i], s = sum[i];
            size[i] = reduction == HC_PRODUCT ? (q ? size[i] * fabs(x) : fabs(x)) : size[i] + fabs(x);
            sum[i] = q == 0                    ? x
                     : reduction == HC_PRODUCT ? s * x
                     : reduction == HC_MIN     ? fmin(s, x)
                     : reduction == HC_MAX     ? fmax(s, x)
                                               : s + x;
        }
    }
    hc_host_convert(result, HC_FLOAT64, results[0][channel], now.dtype, now.count, 1.0);
    int often = roundings() > 1; /* partial sums may be as large as the sum of all sizes */
    double acc = half_ulp(hc__accumulation_dtype(now.dtype));
    double tiny = roundings() * (now.dtype == HC_FLOAT16 ? 0x1p-24 : 1e-38);
    for (size_t i = 0; i < n; i++) {
        sum[i] /= now.reduction.divisor;
        size[i] /= now.reduction.divisor;
        double rounded = half_ulp(now.dtype) * roundings() * (often ? size[i] : fabs(sum[i])) * 1.01;
        CHECK(fabs(result[i] - sum[i]) <= rounded + now.n * acc * size[i] + tiny,
              "%s of %s, n %d, element %zu of %zu: %.17g, not %.17g", hc_reduction_name(now.reduction.reduction),
              hc_dtype_name(now.dtype), now.n, i, n, result[i], sum[i]);
    }
    free(wide);
    free(sum);
    free(size);
    free(result);
}

static void check_channel(int channel) {
    char *inputs[MEMBERS];
    size_t bytes = (size_t)now.count * hc_dtype_size(now.dtype);
    for (int32_t q = 0; q < now.n; q++) {
        CHECK(!memcmp(results[q][channel], results[0][channel], bytes), "members 0 and %d hold other bits (%s, n %d)",
              q, hc__algorithm_name(now.means.algorithm), now.n);
        inputs[q] = malloc(bytes + 1);
        fill_random(inputs[q], now.dtype, now.count, seed_of(q, now.cut ? 0 : channel));
    }
    if (is_float(now.dtype) && now.reduction.reduction <= HC_PRODUCT)
        check_float(channel, inputs);
    else if (now.dtype < HC_COMPLEX64 || now.n <= 2 || now.means.algorithm == HC__DIRECT)
        check_exact(channel, inputs);
    for (int32_t q = 0; q < now.n; q++)
        free(inputs[q]);
}

/* Every member's part to all of them: what an allreduce would have left. */
static void gather(int channel) {
    size_t size = hc_dtype_size(now.dtype);
    for (int32_t q = 0; q < now.n; q++)
        for (int32_t r = 0; r < now.n; r++)
            if (r != q)
                memcpy(results[r][channel] + (size_t)now.bounds[q] * size,
                       results[q][channel] + (size_t)now.bounds[q] * size,
                       (size_t)(now.bounds[q + 1] - now.bounds[q]) * size);
}

static void run_case(void) {
    CHECK(hc_local_net_new(now.n, nets) == HC_OK, "net");
    for (int32_t q = 0; q < now.n; q++)
        nets[q]->message_bytes = now.piece;
    for (int32_t q = 0; q < now.n; q++)
        start_member(q);
    drive();
    for (int32_t q = 0; q < now.n; q++)
        for (int i = 0; i < CHANNELS; i++)
            hc__channel_free(&channels[q][i]);
    for (int i = 0; now.scatters && i < CHANNELS; i++)
        gather(i);
    if (now.cut)
        CHECK(!memcmp(results[0][0], results[0][1], (size_t)now.count * hc_dtype_size(now.dtype)),
              "cut at %lld of %lld: other bits", (long long)now.cut, (long long)now.count);
    for (int i = 0; i < (now.cut ? 1 : CHANNELS); i++)
        check_channel(i);
    for (int32_t q = 0; q < now.n; q++) {
        for (int i = 0; i < CHANNELS; i++)
            free(results[q][i]);
        nets[q]->ops->free(nets[q]);
    }
}

/* With "stages", one of the splits. */
static void choose_means(uint64_t *random) {
    static const double alphas[] = {1e-9, 2e-5, 1.0}; /* bytes count, both do, messages count */
    now.means = (hc__means){(int)below(random, HC__ALGORITHM_COUNT + 1), (int)below(random, 2)};
    now.model = (hc__net_model){alphas[below(random, 3)], 1e-9, 1e-10};
    hc__splits_of(now.n, below(random, 2) ? 0 : 4 + (int32_t)below(random, 7), &now.splits);
    if (now.means.algorithm == HC__STAGES && now.splits.count > 1) {
        now.splits.stages[1] = now.splits.stages[1 + below(random, now.splits.count - 1)];
        now.splits.count = 2;
    }
}

static void choose_case(uint64_t *random, int cut) {
    static const int64_t counts[] = {0, 1, 2, 3, 7, 63, 64, 65, 100, 511, 1000, 4097, 20000};
    do {
        now.dtype = (int)below(random, HC_DTYPE_COUNT);
        now.reduction = (hc__reduction){(int)below(random, HC_REDUCTION_COUNT), 1.0};
    } while (!hc_reduction_defined(now.reduction.reduction, now.dtype) ||
             (now.reduction.reduction == HC_PRODUCT && now.dtype >= HC_COMPLEX64)); /* rounds in another order */
    now.n = 2 + (int32_t)below(random, below(random, 2) ? 7 : MEMBERS - 1);
    if (now.reduction.reduction == HC_AVERAGE) /* of members that count once, or three halves times */
        now.reduction.divisor = now.dtype >= HC_FLOAT16 && below(random, 2) ? 1.5 * now.n : now.n;
    now.count = counts[below(random, sizeof counts / sizeof *counts)];
    choose_means(random);
    now.seed = next_random(random);
    now.piece = below(random, 2) ? 64 + below(random, 1000) : 0;
    now.cut = 0;
    now.scatters = !cut && below(random, 2);
    now.bounds[now.n] = now.count;
    for (int32_t q = 1; q < now.n; q++) /* even, or as it comes */
        now.bounds[q] = now.seed % 2 ? now.count * q / now.n
                                     : now.bounds[q - 1] + below(random, now.count - now.bounds[q - 1] + 1);
    if (cut) {
        now.means.algorithm = HC__DIRECT;
        now.count += 2;
        now.cut = 1 + below(random, now.count - 1);
    }
}

int main(int argc, char **argv) {
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int cases = argc > 2 ? atoi(argv[2]) : 100, cut = argc > 3;
    for (int i = 0; i < cases; i++) {
        choose_case(&random, cut);
        run_case();
    }
    printf("%d cases\n", cases);
    return 0;
}
