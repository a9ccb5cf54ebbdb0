/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.h - the algorithms between nodes, their predicted costs, and the choice of the cheapest.
 */
#pragma once

#include "core/hc.h"
#include "transport/net/radices.h"

/*    NAME    text */
#define HC__ALGORITHMS(X) \
    X(DIRECT, "direct")   \
    X(STAGES, "stages")   \
    X(RING, "ring")

enum hc__algorithm {
#define X(name, text) HC__##name,
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

/* The reduction among all members: an allreduce, or (scatters) its first half, a reduce-scatter. */
typedef struct hc__sum {
    int64_t count;
    uint8_t dtype, reduction;
    uint8_t exact; /* a float16 or bfloat16 sum is rounded once, so partial sums travel as float32 */
    uint8_t scatters;
} hc__sum;

typedef struct hc__choice {
    int algorithm;
    int whole;                /* all data is exchanged in each stage; otherwise parts are scattered, then gathered */
    int kind;                 /* the dtype that travels */
    const hc__stages *stages; /* NULL: a ring */
    double seconds;           /* predicted */
} hc__choice;

/* The cheapest form of an algorithm, or of all. It depends only on values that are equal on all members, so all members
 * choose the same. If the members are too few for several stages, "stages" is "direct". */
hc__choice hc__net_choose(const hc__net_model *, const hc__splits *, int algorithm, const hc__sum *);

/* The stages in which a broadcast takes the least time, if it scatters parts of its bytes and then gathers them; and
 * those of a reduce, which adds up parts and then gathers them on its root. */
hc__choice hc__choose_broadcast(const hc__net_model *, const hc__splits *, int64_t bytes);
hc__choice hc__choose_reduce(const hc__net_model *, const hc__splits *, const hc__sum *);

/* The time in which a member gets these bytes from each of n others at once, and adds them to its own. */
double hc__at_once_seconds(const hc__net_model *, int32_t n, double bytes);

/* Members send sums of some operands; otherwise only their own operands, and results. */
int hc__sends_partials(const hc__stages *, int scatters);
/* The dtype that travels in stages. */
int hc__kind_in_stages(const hc__stages *, const hc__sum *);
/* float16, bfloat16 -> float32; others themselves. */
int hc__accumulation_dtype(int dtype);
/* First element of part i of n (i == n: count). Parts of 1024 elements and more begin at multiples of 64. */
int64_t hc__even_part(int64_t count, int32_t n, int32_t i);
