/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithms.h - the operations between nodes: allreduce, reduce-scatter, broadcast, reduce.
 */
#pragma once

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

/* The way of one segment from the root to all members, or to it. */
typedef struct hc__way {
    int32_t root;
    int64_t segments;         /* of the pipeline, of which this is one */
    const hc__stages *stages; /* NULL: the tree */
} hc__way;

/* Broadcasts the data of the root, which is only read there. */
int hc__net_broadcast_start(hc__channel *, void *data, int64_t count, int dtype, hc__way);
/* Reduces the data of all members to the root; the other members' data is undefined. */
int hc__net_reduce_start(hc__channel *, void *data, int64_t count, int dtype, hc__reduction, hc__way, int exact);
/* The same, where the bits depend on neither the length nor the segments: all send their data to the root at once. */
int hc__net_reduce_in_order_start(hc__channel *, void *data, int64_t count, int dtype, hc__reduction, int32_t root);

/* ---- the tree of a broadcast and of a reduce, or stages -------------------------------------------------- */

/* One segment uses a binomial tree; many segments use a chain, which sends every byte over each link once. */
hc__tree hc__tree_of(int32_t n, int32_t place, double segments);
/* The member at a place of the tree. */
int32_t hc__tree_member(const hc__channel *, int32_t place);
/* Bytes of a segment with which so many bytes take the shortest time to all n members: `most`, or a part of it. */
int64_t hc__tree_segment(const hc__net_model *, int32_t n, int64_t bytes, int64_t most);
/* The time of so many bytes in segments of `segment` bytes. */
double hc__tree_seconds(const hc__net_model *, int32_t n, int64_t bytes, int64_t segment);
/* The time of a choice of stages for so many segments. */
double hc__staged_seconds(const hc__net_model *, const hc__choice *, double segments);
/* The stages of a choice, in which so many segments take less time than in the tree; or NULL. */
const hc__stages *hc__stages_or_tree(const hc__net_model *, int32_t n, const hc__choice *, double segments,
                                     double tree_seconds);
/* The stages in which a broadcast of so many bytes, in segments of `most` bytes, scatters and then gathers their parts;
 * NULL: all members have them earlier if segments of hc__tree_segment() go down the tree. */
const hc__stages *hc__broadcast_stages(const hc__net_model *, const hc__splits *, int64_t bytes, int64_t most);
/* The stages in which a reduce adds up parts and then gathers them, in segments of `most` bytes; NULL: the root has the
 * result earlier if segments of `segment` bytes go up the tree. */
const hc__stages *hc__reduce_stages(const hc__net_model *, const hc__splits *, const hc__sum *, int64_t segment,
                                    int64_t most);
/* The time of a reduce in segments of `segment` bytes up the tree. */
double hc__reduce_tree_seconds(const hc__net_model *, int32_t n, const hc__sum *, int64_t segment);

/* ---- the rounds of an allreduce, and of a broadcast and a reduce in stages ------------------------------- */

hc__round_fn hc__round_stages, hc__round_ring, hc__round_broadcast_stages, hc__round_reduce_stages;
/* Sets how the members of these stages add up; NULL: around a ring. The caller has set form.scatters. */
void hc__take_stages(hc__channel *, const hc__stages *, int dtype, int kind, hc__reduction);
/* Elements of scratch that the stages need. */
int64_t hc__stages_scratch(const hc__channel *);
/* work = the reduction over all members in their order. My operand is in work, the others' are in scratch, in the order
 * of the members. HC_MOVED, or a status. */
int hc__sum_in_order(hc__channel *);
