/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithms.h - allreduce, reduce-scatter and broadcast among nodes over point-to-point messages: private to the net_*.c
 * and hierarchy_*.c files.
 *
 * An algorithm is a function that is called once a round: it does the arithmetic of what the last round
 * received and posts the messages of the next. All that is posted in a round forms a bundle; the frame
 * (net_allreduce.c) waits for the bundle without blocking and calls the next round. There is no pipelining
 * inside an algorithm: the hierarchy runs several chunks at once, each on a tag of its own, and so keeps both
 * directions of the link and the arithmetic busy with one mechanism instead of one an algorithm.
 */
#ifndef HC_NET_H
#define HC_NET_H

#include "transport/transport.h"

/* ---- bundle: requests that are awaited together --------------------------------------------------- */

#define HC__WINDOW 8

/* One message, which may travel in pieces of net->message_bytes, a window of them at a time. */
typedef struct hc__flight {
    int32_t peer, tag;
    uint8_t receives;
    char *data;
    int64_t bytes, posted, arrived;
    hc_net_request *pieces[HC__WINDOW]; /* posted and not arrived: number i at i % HC__WINDOW */
} hc__flight;

typedef struct hc__bundle {
    hc_net *net;
    hc__flight *flights; /* in the order in which they were added */
    int32_t n, room;
    uint8_t stuck; /* a request could not be cancelled: the buffers may still be read or written */
    uint8_t held;  /* nothing is posted before hc__bundle_release() */
    uint8_t whole; /* messages are not cut: what suits a socket makes a device's memory travel by way of the host */
} hc__bundle;

/* Messages of 0 bytes are not sent at all (both sides know the lengths). */
int hc__bundle_send(hc__bundle *, int32_t peer, int32_t tag, const void *, int64_t bytes);
int hc__bundle_receive(hc__bundle *, int32_t peer, int32_t tag, void *, int64_t bytes);
int hc__bundle_release(hc__bundle *);
int hc__bundle_test(hc__bundle *); /* HC_DONE: nothing is in flight */
void hc__bundle_cancel(hc__bundle *);
void hc__bundle_free(hc__bundle *);

/* ---- who takes part ------------------------------------------------------------------------------- */

typedef struct hc__team {
    hc_net *net;
    hc_arithmetic *arithmetic; /* of the memory that the data is in */
    const int32_t *peers;      /* World rank of member i */
    int32_t n, me;
} hc__team;

/* ---- the model ------------------------------------------------------------------------------------ */

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
    double alpha; /* seconds a message */
    double beta;  /* seconds a byte on the wire, a direction */
    double gamma; /* seconds a byte read by a reduction */
} hc__net_model;

/* Predicted seconds for `count` elements of dtype among n members. */
double hc__net_cost(const hc__net_model *, int algorithm, int32_t n, int64_t count, int dtype);
/* The cheapest. A pure function of what all members know, so that all choose alike. */
int hc__net_choose(const hc__net_model *, int32_t n, int64_t count, int dtype);
/* The same of a reduce-scatter: the first half of an allreduce, by "direct", "ring" or "rabenseifner". */
double hc__net_scatter_cost(const hc__net_model *, int algorithm, int32_t n, int64_t count, int dtype);
int hc__net_choose_scatter(const hc__net_model *, int32_t n, int64_t count, int dtype);
/* Whether "direct" sends everything to everybody in one round (equal bits, other cost). */
int hc__direct_whole(const hc__net_model *, int32_t n, int64_t count, int dtype);

/* float16, bfloat16 -> float32; others themselves. */
int hc__accumulation_dtype(int dtype);
/* First element of part i of n (i == n: count). Parts start on multiples of 64 elements. */
int64_t hc__part(int64_t count, int32_t n, int32_t i);

/* ---- the tree of a broadcast ------------------------------------------------------------------------ */

/* A member's neighbours, all counted from the root, which is 0; the farthest child first. */
typedef struct hc__family {
    int32_t parent; /* -1: the root */
    int32_t nchildren, children[32];
} hc__family;
/* What is sent in one segment goes down a binomial tree, what is sent in many down a chain, which sends every byte over
 * each link once. */
hc__family hc__family_of(int32_t n, int32_t place, double segments);

/* ---- one of them in flight --------------------------------------------------------------------------- */

struct hc__allreduce;
/* Called once per round: does the arithmetic on what the last round received and posts the next messages. HC_DONE after
 * the last round, HC_MOVED when another follows, or a status. */
typedef int hc__round_fn(struct hc__allreduce *, int32_t round);

typedef struct hc__allreduce {
    /* set once by init */
    const hc__team *team;
    hc__net_model model;
    int32_t tag;
    hc__bundle bundle;
    void *work_memory, *scratch_memory; /* grown as needed, kept from one use to the next */
    int64_t work_room, scratch_room;
    int64_t *bounds; /* reduce-scatter: where each member's part begins; n + 1 entries */
    /* one use */
    hc__round_fn *round;
    void *data;    /* count elements of dtype */
    char *work;    /* count elements of kind: data itself, or work_memory */
    char *scratch; /* what is received */
    int64_t count;
    int32_t next_round;
    uint8_t dtype, reduction;
    uint8_t kind;  /* what the algorithm works in: dtype, or its accumulation type */
    uint8_t whole; /* direct: one round */
    uint8_t scatters;
    uint8_t running;
    hc__family family; /* broadcast, reduce */
    int32_t root;
    int failed;      /* a status of the team's arithmetic */
    uint64_t awaits; /* how many of its operations must have ended before the next message */
} hc__allreduce;

void hc__allreduce_init(hc__allreduce *, const hc__team *, const hc__net_model *, int32_t tag);
/* Reduces data (count elements of dtype) in place among the team: summed in the accumulation type and rounded
 * once; all members end with equal bits. algorithm may be HC__AUTO. The data belongs to it until test says
 * HC_DONE. */
int hc__allreduce_start(hc__allreduce *, void *data, int64_t count, int dtype, int reduction, int algorithm);
/* The same, but member i ends with the elements [bounds[i], bounds[i + 1]) only; the rest of its data is lost.
 * bounds (n + 1 entries, from 0) is copied. "recursive_doubling" has no such half: "rabenseifner" stands for it. */
int hc__reduce_scatter_start(hc__allreduce *, void *data, const int64_t *bounds, int dtype, int reduction,
                             int algorithm);
/* The data of member `root` to all; one of so many segments that are under way in turn. */
int hc__net_broadcast_start(hc__allreduce *, void *data, int64_t count, int dtype, int32_t root, int64_t segments);
/* Reduces the data of all members to member `root`; the others' data is lost. `segments` as above. in_order: the bits
 * depend on neither the length nor the segments. */
int hc__net_reduce_start(hc__allreduce *, void *data, int64_t count, int dtype, int reduction, int32_t root,
                         int64_t segments, int in_order);
int hc__allreduce_test(hc__allreduce *);
void hc__allreduce_abandon(hc__allreduce *);
void hc__allreduce_free(hc__allreduce *);

hc__round_fn hc__round_recursive_doubling, hc__round_direct, hc__round_ring, hc__round_rabenseifner;
/* What all of them start with: the rounds work on `kind`, which is dtype or its accumulation type, and may use `scratch`
 * elements of it. */
int hc__rounds_start(hc__allreduce *, hc__round_fn *, void *data, int64_t count, int dtype, int kind, int reduction,
                     int64_t scratch);

/* Where member i's part begins (i == n: where the last one ends). */
int64_t hc__part_of(const hc__allreduce *, int32_t i);
/* What the algorithms share: elements [at, at + n) of work to and from a member, and the sum of what lies in
 * scratch into work (`first`: the received operand is the left one). */
int hc__send_part(hc__allreduce *, int32_t member, int64_t at, int64_t n);
int hc__receive_part(hc__allreduce *, int32_t member, int64_t at, int64_t n);
int hc__receive_scratch(hc__allreduce *, int32_t member, int64_t at, int64_t n);
void hc__combine(hc__allreduce *, int64_t at, int64_t n, int first);
/* work[at, at + n) = the reduction over all members in their order: my operand is in work, the others' are in scratch in
 * the order of the members, `stride` elements apart. HC_MOVED, or a status. */
int hc__sum_in_order(hc__allreduce *, int64_t at, int64_t n, int64_t stride);
void hc__add_up(hc__allreduce *, void *to, const void *const *from, int n_from, int64_t n);

#endif
