/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithms.h - the operations between nodes: allreduce, reduce-scatter, broadcast, reduce.
 */
#ifndef HC_ALGORITHMS_H
#define HC_ALGORITHMS_H

#include "transport/net/channel.h"

/* Reduces data (count elements of dtype) in place among the team: summed in the accumulation type, divided there where
 * it is a mean, and rounded once; all members end with equal bits. algorithm may be HC__AUTO. The data belongs to it
 * until test says HC_DONE. */
int hc__allreduce_start(hc__channel *, void *data, int64_t count, int dtype, hc__reduction, int algorithm);
/* The same, but member i ends with the elements [bounds[i], bounds[i + 1]) only; the rest of its data is lost.
 * bounds (n + 1 entries, from 0) is copied. "recursive_doubling" has no such half: "rabenseifner" stands for it. */
int hc__reduce_scatter_start(hc__channel *, void *data, const int64_t *bounds, int dtype, hc__reduction, int algorithm);
/* The data of member `root` to all; one of so many segments that are under way in turn. */
int hc__net_broadcast_start(hc__channel *, void *data, int64_t count, int dtype, int32_t root, int64_t segments);
/* Reduces the data of all members to member `root`; the others' data is lost. `segments` as above. in_order: the bits
 * depend on neither the length nor the segments. */
int hc__net_reduce_start(hc__channel *, void *data, int64_t count, int dtype, hc__reduction, int32_t root,
                         int64_t segments, int in_order);
/* ---- the tree of a broadcast and of a reduce ------------------------------------------------------------ */

/* What is sent in one segment goes down a binomial tree, what is sent in many down a chain, which sends every byte over
 * each link once. */
hc__tree hc__tree_of(int32_t n, int32_t place, double segments);

/* ---- the rounds of an allreduce -------------------------------------------------------------------------- */

hc__round_fn hc__round_recursive_doubling, hc__round_direct, hc__round_ring, hc__round_rabenseifner;
/* work[at, at + n) = the reduction over all members in their order: my operand is in work, the others' are in scratch
 * in the order of the members, `stride` elements apart. HC_MOVED, or a status. */
int hc__sum_in_order(hc__channel *, int64_t at, int64_t n, int64_t stride);

#endif
