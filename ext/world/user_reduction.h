/* SPDX-License-Identifier: Apache-2.0
 *
 * user_reduction.h - operations whose reduction is a function of the program, for programs in any language.
 *
 * A call is a few operations of bytes, which the caller begins under the name of the call and waits for, one after the
 * other:
 *
 *     hc_folding_new(&arguments, &place, form, sample, bytes, &f);
 *     while (hc_folding_next(f, &step)) {
 *         ... begin step.arguments, wait ...
 *         hc_folding_take(f, result, rows, why);
 *     }
 *     hc_folding_free(f);
 */
#pragma once

#include "world/arguments.h"

/* The beginning of a rank's array, for a language that looks at some elements before it gives pieces to a function. */
typedef struct hc_sample {
    const char *data;
    int64_t bytes;
} hc_sample;

typedef void (*hc_user_function)(void);

/* A reduction of the program. It is associative, and need not be commutative. The thread that waits calls it. */
typedef struct hc_user_reduction {
    /* Combines `count` elements of `in`, which come from lower ranks, with those of `inout`, into `inout`. OK, or a
     * status whose text the language keeps. */
    int (*fold)(const struct hc_user_reduction *, const void *in, void *inout, int64_t count, int dtype);
    /* Writes neutral elements and returns 1. NULL, or a result of 0: the reduction has no known neutral element. */
    int (*neutral)(const struct hc_user_reduction *, void *to, int64_t count, int dtype);
    /* Looks at the samples of all ranks before anything is combined. OK, or a status that is the same on all ranks, as
     * above. NULL: there is nothing to look at. */
    int (*check)(const struct hc_user_reduction *, const hc_sample *, int n);
    hc_user_function function; /* the language's, as are the next two */
    void *of;
    int64_t item;
    int64_t block; /* elements that belong together; 0: all of an array */
    char name[64]; /* for errors; equal on all ranks */
} hc_user_reduction;

enum hc_folding_form { HC_FOLDING_WAITS, HC_FOLDING_ASYNC, HC_FOLDING_PLAN };

/* One operation of the call. */
typedef struct hc_folding_step {
    hc_arguments arguments;
    hc_operand two[2];
} hc_folding_step;

/* A call, or a plan. */
typedef struct hc_folding hc_folding;

/* Makes the state of a call whose arguments were checked. It reads and writes the program's arrays until it is freed.
 * `sample`: of this rank's array, or NULL. OK, or NO_MEMORY. */
int hc_folding_new(const hc_arguments *, const hc_place *, enum hc_folding_form, const void *sample, size_t bytes,
                   hc_folding **);
void hc_folding_free(hc_folding *); /* or NULL */
/* 1: begin this operation, whose memory lives as long as the call; 0: the call is over, or a plan may be made. */
int hc_folding_next(hc_folding *, hc_folding_step *);
/* Takes the result of the operation, which it may change, and the rows that each rank gave to it. OK, or a status with
 * why ("": the language knows it), and the call is over. */
int hc_folding_take(hc_folding *, char *result, const int64_t *rows, char why[HC_WHY]);
/* 1: after an error, the other ranks have begun another operation of the call, which this rank must refuse. */
int hc_folding_leaves(const hc_folding *);
/* Whether the operation that hc_folding_next() has described is the last one, unless a rank has joined. */
int hc_folding_is_last(const hc_folding *);
/* 1: `out` has the result. 0: no rank is before this one in an exscan, and nobody knows what changes nothing; or the
 * result is the root's. */
int hc_folding_found(const hc_folding *);

/* The operation of a plan. All starts read the program's array, and write memory of the call. */
void hc_folding_plan(hc_folding *, hc_folding_step *);
/* Combines the arrays after a start. As hc_folding_take(). */
int hc_folding_take_start(hc_folding *, char why[HC_WHY]);

/* The hash of what must be equal on all ranks; NULL: 0. */
uint64_t hc_user_reduction_hash(const hc_user_reduction *);
