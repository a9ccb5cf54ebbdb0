/* SPDX-License-Identifier: Apache-2.0
 *
 * channel.h - one operation in flight between nodes, with its tag and buffers: the frame of the algorithms.
 *
 * An algorithm is a function that is called once per round: it does the arithmetic on the data of the last round and
 * posts the messages of the next. The messages of a round form a bundle; the channel tests the bundle without blocking
 * and then calls the next round. Algorithms need no pipelining: the hierarchy runs several chunks at once, each in its
 * own channel, which keeps both directions of the link and the arithmetic busy.
 */
#pragma once

#include "transport/arithmetic.h"
#include "transport/net/bundle.h"
#include "transport/net/choose.h"

typedef struct hc__team {
    hc_net *net;
    hc_arithmetic *arithmetic; /* for the memory of the data */
    const int32_t *peers;      /* World rank of member i */
    int32_t n, me;
    const hc__splits *splits; /* of n, for allreduce and reduce-scatter */
} hc__team;

/* ---- a channel --------------------------------------------------------------------------------------- */

/* A member's neighbours, numbered from the root, which is 0; the farthest child first. */
typedef struct hc__tree {
    int32_t parent; /* -1: the root */
    int32_t nchildren, children[32];
} hc__tree;
struct hc__channel;
/* Called once per round: does the arithmetic on the data of the last round and posts the next messages. HC_DONE after
 * the last round, HC_MOVED when another follows, or a status. */
typedef int hc__round_fn(struct hc__channel *, int32_t round);

/* Memory that grows as needed and is kept between uses. */
typedef struct hc__channel_memory {
    void *work, *scratch;
    int64_t work_room, scratch_room;
} hc__channel_memory;

typedef struct hc__rounds {
    hc__round_fn *call;
    int32_t next;
    uint8_t running;
} hc__rounds;

/* How members add up. */
typedef struct hc__form {
    uint8_t whole; /* see hc__choice */
    uint8_t scatters;
    uint8_t partial; /* partial sums are sent */
    uint8_t divides; /* each stage divides a mean by a power of two */
} hc__form;

typedef struct hc__channel {
    /* set once by init */
    const hc__team *team;
    hc__net_model model;
    int32_t tag;
    hc__bundle bundle;
    hc__channel_memory memory;
    int64_t *bounds; /* reduce-scatter: where each member's part begins; n + 1 entries */
    /* set for each use */
    hc__rounds rounds;
    void *data;    /* count elements of dtype */
    char *work;    /* count elements of kind: data itself, or memory.work */
    char *scratch; /* for received operands */
    int64_t count;
    hc__reduction reduction;
    uint8_t dtype;
    uint8_t kind; /* the type of the work: dtype, or its accumulation type */
    hc__form form;
    const hc__stages *stages;
    hc__tree tree; /* broadcast, reduce */
    int32_t root;
    int failed;      /* a status of the team's arithmetic */
    uint64_t awaits; /* number of its operations that must end before the next message */
} hc__channel;

void hc__channel_init(hc__channel *, const hc__team *, const hc__net_model *, int32_t tag);
int hc__channel_test(hc__channel *);
void hc__channel_abandon(hc__channel *);
void hc__channel_free(hc__channel *);

/* ---- for all algorithms ------------------------------------------------------------------------------- */

/* Starts the rounds. They work in `kind`, which is dtype or its accumulation type, and may use `scratch` elements of
 * it. */
int hc__rounds_start(hc__channel *, hc__round_fn *, void *data, int64_t count, int dtype, int kind, hc__reduction,
                     int64_t scratch);

/* Where member i's part begins (i == n: where the last one ends). */
int64_t hc__part_of(const hc__channel *, int32_t i);
/* Send elements [at, at + n) of work to a member, receive them into work or into scratch, and add scratch to work
 * (`first`: scratch is the left operand). `last`: no other operand follows. */
int hc__send_part(hc__channel *, int32_t member, int64_t at, int64_t n);
int hc__receive_part(hc__channel *, int32_t member, int64_t at, int64_t n);
int hc__receive_scratch(hc__channel *, int32_t member, int64_t at, int64_t n);
void hc__combine(hc__channel *, int64_t at, int64_t n, int first, int last);
void hc__add_up(hc__channel *, void *to, const void *const *from, int n_from, int64_t n, hc__reduction);
/* The channel's reduction; but a mean is divided only if no other operand follows. */
hc__reduction hc__reduction_of(const hc__channel *, int last);
