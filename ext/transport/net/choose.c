/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.c - chooses the allreduce algorithm by a model: alpha seconds per message, beta seconds per byte.
 *
 * Costs after Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). Two
 * things are added. Algorithms that forward partial sums send float16 and bfloat16 as float32, so that the sum is
 * rounded once, which doubles the bytes; "direct" sends only contributions and does not. And links have contention:
 * each further message of a round costs a part of alpha, and bytes from many peers at once, or to far partners, cost a
 * little more than those of a ring.
 */
#include "transport/net/choose.h"

#include <string.h>

#define PART_ALIGNED 1024 /* elements of a part that begins at a multiple of 64: at most 6 % larger than the mean */

static const struct {
    const char *name;
    int partial;
} algorithms[] = {
#define X(name, text, partial) {text, partial},
    HC__ALGORITHMS(X)
#undef X
};

const char *hc__algorithm_name(int algorithm) {
    return algorithm >= 0 && algorithm < HC__ALGORITHM_COUNT ? algorithms[algorithm].name : "auto";
}

int hc__algorithm_named(const char *name) {
    if (!name || !strcmp(name, "auto"))
        return HC__AUTO;
    for (int i = 0; i < HC__ALGORITHM_COUNT; i++)
        if (!strcmp(name, algorithms[i].name))
            return i;
    return -1;
}

int hc__accumulation_dtype(int dtype) {
    return dtype == HC_FLOAT16 || dtype == HC_BFLOAT16 ? HC_FLOAT32 : dtype;
}

/* Large parts begin at cache lines. For small parts that would make some much larger than others, and links would wait;
 * so small parts differ by at most one element. */
int64_t hc__even_part(int64_t count, int32_t n, int32_t i) {
    int64_t least = count / n, more = count % n;
    if (least < PART_ALIGNED)
        return i * least + (i < more ? i : more);
    int64_t part = (least + (more != 0) + 63) / 64 * 64;
    return i > count / part ? count : (i * part < count ? i * part : count);
}

/* Rounds of a doubling algorithm. *folded: n is no power of two, so members must be folded first. */
static int doublings(int32_t n, int *folded) {
    int rounds = 0;
    while ((int32_t)1 << (rounds + 1) <= n && rounds < 30)
        rounds++;
    *folded = (int32_t)1 << rounds != n;
    return rounds;
}

/* The cost of n messages posted together: they overlap, but each costs processor time. */
static double together(const hc__net_model *m, int32_t n) {
    return n > 0 ? m->alpha * (1.0 + 0.2 * (n - 1)) : 0.0;
}

static double direct_whole_cost(const hc__net_model *m, int32_t n, double bytes) {
    return together(m, n - 1) + (n - 1) * bytes * m->beta + n * bytes * m->gamma;
}

static double direct_parts_cost(const hc__net_model *m, int32_t n, double bytes) {
    double incast = 1.0 + 0.01 * (n - 2);
    return 2 * together(m, n - 1) + 2.0 * (n - 1) / n * bytes * m->beta * incast + bytes * m->gamma;
}

int hc__direct_whole(const hc__net_model *m, int32_t n, int64_t count, int dtype) {
    double bytes = (double)count * (double)hc_dtype_size(dtype);
    return direct_whole_cost(m, n, bytes) <= direct_parts_cost(m, n, bytes);
}

double hc__net_cost(const hc__net_model *m, int algorithm, int32_t n, int64_t count, int dtype) {
    int kind = algorithms[algorithm].partial ? hc__accumulation_dtype(dtype) : dtype;
    double bytes = (double)count * (double)hc_dtype_size(kind);
    int folded, rounds = doublings(n, &folded);
    double fold = folded ? 2 * (m->alpha + bytes * m->beta) + 2 * bytes * m->gamma : 0.0;
    double halves = 2.0 * (n - 1) / n * bytes;

    switch (algorithm) {
    case HC__RECURSIVE_DOUBLING:
        return fold + rounds * (m->alpha + bytes * m->beta + 2 * bytes * m->gamma);
    case HC__RING:
        return 2.0 * (n - 1) * m->alpha + halves * m->beta + halves * m->gamma;
    case HC__RABENSEIFNER:
        return fold + 2.0 * rounds * m->alpha + 1.1 * halves * m->beta + halves * m->gamma;
    default:
        return hc__direct_whole(m, n, count, dtype) ? direct_whole_cost(m, n, bytes) : direct_parts_cost(m, n, bytes);
    }
}

double hc__net_scatter_cost(const hc__net_model *m, int algorithm, int32_t n, int64_t count, int dtype) {
    int kind = algorithms[algorithm].partial ? hc__accumulation_dtype(dtype) : dtype;
    double bytes = (double)count * (double)hc_dtype_size(kind), most = (double)(n - 1) / n * bytes;
    int folded, rounds = doublings(n, &folded);
    double fold = folded ? 2 * m->alpha + bytes * m->beta + 2 * bytes * m->gamma : 0.0;

    switch (algorithm) {
    case HC__RING:
        return (n - 1) * m->alpha + most * m->beta + most * m->gamma;
    case HC__DIRECT:
        return together(m, n - 1) + most * m->beta * (1.0 + 0.01 * (n - 2)) + bytes * m->gamma;
    default:
        return fold + rounds * m->alpha + 1.1 * most * m->beta + most * m->gamma;
    }
}

int hc__net_choose_scatter(const hc__net_model *m, int32_t n, int64_t count, int dtype) {
    int best = HC__DIRECT;
    for (int i = 0; i < HC__ALGORITHM_COUNT; i++)
        if (i != HC__RECURSIVE_DOUBLING &&
            hc__net_scatter_cost(m, i, n, count, dtype) < hc__net_scatter_cost(m, best, n, count, dtype))
            best = i;
    return best;
}

int hc__net_choose(const hc__net_model *m, int32_t n, int64_t count, int dtype) {
    int best = HC__DIRECT; /* preferred in a tie: its bits do not depend on the position of an element */
    for (int i = 0; i < HC__ALGORITHM_COUNT; i++)
        if (hc__net_cost(m, i, n, count, dtype) < hc__net_cost(m, best, n, count, dtype))
            best = i;
    return best;
}
