/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithms.h - the operations between nodes: allreduce, reduce-scatter, broadcast, reduce.
 */
#ifndef HC_ALGORITHMS_H
#define HC_ALGORITHMS_H

#include "transport/net/channel.h"

/* How an allreduce or a reduce-scatter is done. */
typedef struct hc__means {
    int algorithm; /* may be HC__AUTO */
    int exact;     /* see hc__sum */
} hc__means;

/* Reduces data (count elements of dtype) in place among the team: adds in the accumulation type, divides there for a
 * mean, and rounds once, or once per stage. All members end with equal bits. Do not touch the data until test gives
 * HC_DONE. */
int hc__allreduce_start(hc__channel *, void *data, int64_t count, int dtype, hc__reduction, hc__means);
/* The same, but member i gets only the elements [bounds[i], bounds[i + 1]); the rest of its data is undefined. bounds
 * (n + 1 entries, from 0) is copied. */
int hc__reduce_scatter_start(hc__channel *, void *data, const int64_t *bounds, int dtype, hc__reduction, hc__means);
/* Broadcasts the data of member `root`, which is only read there: down the tree, or in stages (see below). `segments`:
 * the number of segments in the pipeline, of which this is one. */
int hc__net_broadcast_start(hc__channel *, void *data, int64_t count, int dtype, int32_t root, int64_t segments,
                            const hc__stages *);
/* Reduces the data of all members to member `root`; the other members' data is undefined. `segments` as above.
 * in_order: the bits depend on neither the length nor the segments. */
int hc__net_reduce_start(hc__channel *, void *data, int64_t count, int dtype, hc__reduction, int32_t root,
                         int64_t segments, int in_order);
/* ---- the tree of a broadcast and of a reduce ------------------------------------------------------------ */

/* One segment uses a binomial tree; many segments use a chain, which sends every byte over each link once. */
hc__tree hc__tree_of(int32_t n, int32_t place, double segments);
/* Bytes of a segment with which so many bytes take the shortest time to all n members: `most`, or a part of it. */
int64_t hc__tree_segment(const hc__net_model *, int32_t n, int64_t bytes, int64_t most);
/* The stages in which a broadcast of so many bytes, in segments of `most` bytes, scatters and then gathers their parts;
 * NULL: all members have them earlier if segments of hc__tree_segment() go down the tree. */
const hc__stages *hc__broadcast_stages(const hc__net_model *, const hc__splits *, int64_t bytes, int64_t most);

/* ---- the rounds of an allreduce, and of a broadcast in stages -------------------------------------------- */

hc__round_fn hc__round_stages, hc__round_ring, hc__round_broadcast_stages;
/* Elements of scratch that the stages need. */
int64_t hc__stages_scratch(const hc__channel *);
/* work = the reduction over all members in their order. My operand is in work, the others' are in scratch, in the order
 * of the members. HC_MOVED, or a status. */
int hc__sum_in_order(hc__channel *);

#endif
