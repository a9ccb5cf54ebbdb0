/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.c - chooses the allreduce algorithm by a model: alpha seconds per message, beta seconds per byte.
 *
 * Costs after Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). One
 * thing is added: links have contention. Each further message of a round costs a part of alpha; bytes from many members
 * at once, or to far ones, cost a little more than those of a ring.
 */
#include "transport/net/choose.h"

#include <string.h>

#define PART_ALIGNED 1024 /* elements of a part that begins at a multiple of 64: at most 6 % larger than the mean */
#define INCAST 0.01       /* of beta: a further member that sends at the same time */
#define FAR 1.1           /* of beta: bytes that go to distant members as well, or may do so */

static const char *const names[] = {
#define X(name, text) text,
    HC__ALGORITHMS(X)
#undef X
};

const char *hc__algorithm_name(int algorithm) {
    return algorithm >= 0 && algorithm < HC__ALGORITHM_COUNT ? names[algorithm] : "auto";
}

int hc__algorithm_named(const char *name) {
    if (!name || !strcmp(name, "auto"))
        return HC__AUTO;
    for (int i = 0; i < HC__ALGORITHM_COUNT; i++)
        if (!strcmp(name, names[i]))
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

/* ---- the type that travels ------------------------------------------------------------------------------ */

/* A partial sum of 16-bit floats is rounded each time it is sent as such, and a product may leave their range. Other
 * reductions give one of the operands. */
static int kind_of_partials(const hc__sum *sum, int in_float32) {
    int adds = sum->reduction == HC_SUM || sum->reduction == HC_AVERAGE;
    if (sum->reduction == HC_PRODUCT || (adds && in_float32))
        return hc__accumulation_dtype(sum->dtype);
    return sum->dtype;
}

int hc__sends_partials(const hc__stages *stages, int scatters) {
    return !stages || stages->depth > 1 || (scatters && stages->extra > 0);
}

static double bytes_of(const hc__sum *sum, int kind) {
    return (double)sum->count * (double)hc_dtype_size(kind);
}

/* ---- costs ------------------------------------------------------------------------------------------------ */

/* n messages posted together: they overlap, but each costs processor time. */
static double together(const hc__net_model *m, int32_t n) {
    return n > 0 ? m->alpha * (1.0 + HC__FURTHER * (n - 1)) : 0.0;
}

/* The members from which one receives in a stage. */
static int32_t senders(const hc__stages *stages, int32_t stage) {
    return stages->radix[stage] - 1 + (stage == 0 && stages->extra > 0);
}

double hc__at_once_seconds(const hc__net_model *m, int32_t n, double bytes) {
    return together(m, n) + n * bytes * m->beta + (n + 1) * bytes * m->gamma;
}

static double whole_cost(const hc__net_model *m, const hc__stages *stages, double bytes) {
    double seconds = stages->extra > 0 ? m->alpha + bytes * m->beta
                                       : 0.0; /* the result, to a member without position */
    for (int32_t stage = 0; stage < stages->depth; stage++)
        seconds += hc__at_once_seconds(m, senders(stages, stage), bytes);
    return seconds;
}

/* The cost of one direction: the scatter, which adds up, or the gather, which does not (gamma 0). `near`: the number of
 * stages among near members. */
static double parts_cost(const hc__net_model *m, const hc__stages *stages, int32_t near, double bytes, double gamma) {
    double seconds = 0.0;
    for (int32_t stage = 0; stage < stages->depth; stage++) {
        double far = stages->depth > 1 && stage >= near ? FAR : 1.0;
        int32_t n = senders(stages, stage), radix = stages->radix[stage];
        double incast = 1.0 + INCAST * (n - 1), share = (double)n / radix;
        seconds += together(m, n) + share * bytes * m->beta * incast * far + (n + 1.0) / radix * bytes * gamma;
        bytes /= radix;
    }
    return seconds;
}

/* In a reduce-scatter the members without position give their data in a round before, and get their part last. It
 * begins with the farthest members, so little is left for the near ones. */
static double scatter_cost(const hc__net_model *m, const hc__stages *stages, double bytes) {
    double fold = together(m, stages->radix[0]) + bytes * m->beta + m->alpha;
    return parts_cost(m, stages, 0, bytes, m->gamma) + (stages->extra > 0 ? fold : 0.0);
}

static double ring_cost(const hc__net_model *m, int32_t n, double bytes, int scatters) {
    double share = (double)(n - 1) / n * bytes;
    double way = (n - 1) * m->alpha + share * m->beta;
    return (scatters ? way : 2 * way) + 2 * share * m->gamma;
}

/* ---- the choice --------------------------------------------------------------------------------------------- */

int hc__kind_in_stages(const hc__stages *stages, const hc__sum *sum) {
    return hc__sends_partials(stages, sum->scatters) ? kind_of_partials(sum, sum->exact) : sum->dtype;
}

/* Parts are scattered and added up, and come together. */
static double both_ways(const hc__net_model *m, const hc__stages *stages, double bytes) {
    return parts_cost(m, stages, stages->near, bytes, m->gamma) + parts_cost(m, stages, stages->near, bytes, 0.0);
}

static hc__choice in_stages(const hc__net_model *m, const hc__stages *stages, int algorithm, const hc__sum *sum) {
    int kind = hc__kind_in_stages(stages, sum);
    double bytes = bytes_of(sum, kind);
    hc__choice found = {algorithm, 0, kind, stages, scatter_cost(m, stages, bytes)};
    if (sum->scatters)
        return found;
    double whole = whole_cost(m, stages, bytes);
    found.seconds = both_ways(m, stages, bytes);
    if (whole <= found.seconds) {
        found.whole = 1;
        found.seconds = whole;
    }
    return found;
}

static hc__choice of_few_bytes(const hc__net_model *m, const hc__stages *stages, const hc__sum *sum) {
    hc__choice found = in_stages(m, stages, HC__STAGES, sum);
    found.whole = 1;
    found.seconds = whole_cost(m, stages, bytes_of(sum, found.kind));
    return found;
}

static hc__choice around_ring(const hc__net_model *m, int32_t n, const hc__sum *sum) {
    int kind = kind_of_partials(sum, 1);
    return (hc__choice){HC__RING, 0, kind, NULL, ring_cost(m, n, bytes_of(sum, kind), sum->scatters)};
}

static int has_few_bytes(const hc__sum *sum) {
    return !sum->scatters && bytes_of(sum, sum->dtype) <= HC__FEW_BYTES;
}

hc__choice hc__net_choose(const hc__net_model *m, const hc__splits *splits, int algorithm, const hc__sum *sum) {
    if (algorithm == HC__RING)
        return around_ring(m, splits->n, sum);
    const hc__stages *few = algorithm != HC__DIRECT && has_few_bytes(sum) ? hc__few_bytes(splits) : NULL;
    if (few)
        return of_few_bytes(m, few, sum);
    hc__choice best = in_stages(m, &splits->stages[0], HC__DIRECT, sum); /* preferred in a tie: see stages.c */
    int must_stage = algorithm == HC__STAGES && splits->count > 1;
    for (int32_t i = 1; i < splits->count && algorithm != HC__DIRECT; i++) {
        hc__choice next = in_stages(m, &splits->stages[i], HC__STAGES, sum);
        if (next.seconds < best.seconds || (i == 1 && must_stage))
            best = next;
    }
    hc__choice ring = around_ring(m, splits->n, sum);
    return algorithm == HC__AUTO && ring.seconds < best.seconds ? ring : best;
}

/* With a root without a position, or a member without one, the whole data moves in the first stage, as in an allreduce.
 */
hc__choice hc__choose_reduce(const hc__net_model *m, const hc__splits *splits, const hc__sum *sum) {
    hc__choice best = {.algorithm = HC__STAGES};
    for (int32_t i = 0; i < splits->count; i++) {
        const hc__stages *stages = &splits->stages[i];
        int kind = hc__kind_in_stages(stages, sum);
        double seconds = both_ways(m, stages, bytes_of(sum, kind));
        if (!best.stages || seconds < best.seconds) {
            best.stages = stages;
            best.kind = kind;
            best.seconds = seconds;
        }
    }
    return best;
}

hc__choice hc__choose_broadcast(const hc__net_model *m, const hc__splits *splits, int64_t bytes) {
    hc__net_model moves = {m->alpha, m->beta, 0.0}; /* it adds nothing up */
    hc__sum bytes_alone = {.count = bytes, .dtype = HC_UINT8};
    return hc__choose_reduce(&moves, splits, &bytes_alone);
}
