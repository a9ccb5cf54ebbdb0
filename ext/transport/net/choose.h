/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.h - the algorithms between nodes, their predicted costs, and the choice of the cheapest.
 */
#ifndef HC_CHOOSE_H
#define HC_CHOOSE_H

#include "core/hc.h"

/*    NAME                text                  partials in the accumulation type */
#define HC__ALGORITHMS(X)                          \
    X(RECURSIVE_DOUBLING, "recursive_doubling", 1) \
    X(DIRECT, "direct", 0)                         \
    X(RING, "ring", 1)                             \
    X(RABENSEIFNER, "rabenseifner", 1)

enum hc__algorithm {
#define X(name, text, partial) HC__##name,
    HC__ALGORITHMS(X)
#undef X
        HC__ALGORITHM_COUNT,
    HC__AUTO = HC__ALGORITHM_COUNT
};
const char *hc__algorithm_name(int algorithm);
int hc__algorithm_named(const char *name); /* "auto" or NULL: HC__AUTO; -1: no such name */

typedef struct hc__net_model {
    double alpha; /* seconds per message */
    double beta;  /* seconds per byte on the wire, in one direction */
    double gamma; /* seconds per byte that a reduction reads */
} hc__net_model;

/* Predicted seconds for `count` elements of dtype among n members. */
double hc__net_cost(const hc__net_model *, int algorithm, int32_t n, int64_t count, int dtype);
/* The cheapest. A pure function of what all members know, so that all choose alike. */
int hc__net_choose(const hc__net_model *, int32_t n, int64_t count, int dtype);
/* The same for a reduce-scatter, the first half of an allreduce: "direct", "ring" or "rabenseifner". */
double hc__net_scatter_cost(const hc__net_model *, int algorithm, int32_t n, int64_t count, int dtype);
int hc__net_choose_scatter(const hc__net_model *, int32_t n, int64_t count, int dtype);
/* 1: "direct" sends everything to all members in one round (equal bits, different cost). */
int hc__direct_whole(const hc__net_model *, int32_t n, int64_t count, int dtype);

/* float16, bfloat16 -> float32; others themselves. */
int hc__accumulation_dtype(int dtype);
/* First element of part i of n (i == n: count). Parts of 1024 elements and more begin at multiples of 64. */
int64_t hc__even_part(int64_t count, int32_t n, int32_t i);

#endif
