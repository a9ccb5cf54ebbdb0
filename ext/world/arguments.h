/* SPDX-License-Identifier: Apache-2.0
 *
 * arguments.h - checks the arguments of an operation of any language, and writes them into a request.
 *
 * Python (ext/cython), C and Fortran (ext/api) and compiled programs (ext/gate) fill in these structs. The code tests
 * the traits of an operation (core/hc.h), not the operation.
 */
#pragma once

#include "core/hc.h"
#include "loop/loop.h"
#include "world/in_flight.h"
#include "world/order.h"
#include "world/why.h"
#include "world/words.h"

/* A contiguous array. An absent array has no data, no dimensions and no elements. */
typedef struct hc_operand {
    char *data;
    int64_t count, bytes; /* count -1: the dimensions are negative, or their product is too large */
    int dtype, ndim, memory;
    const char *type; /* a type beyond dtype and dims, of elements that move as bytes; NULL: none */
    int64_t dims[HC_MAX_DIMS];
} hc_operand;

typedef struct hc_arguments {
    uint16_t traits;    /* of the operation */
    uint8_t operation;  /* enum hc_operation */
    uint8_t reduction;  /* enum hc_reduction; HC_REDUCTION_COUNT: `user`, and world/user_reduction.h makes requests */
    uint8_t wire;       /* dtype between nodes, or HC_WIRE_SAME; after the check HC_WIRE_SAME if the arrays have it */
    uint8_t is_group;   /* the arrays are agreed, fused and done together */
    uint8_t is_last;    /* this rank makes no later request */
    uint8_t is_derived; /* the compiled program of the call has derivatives of it */
    uint8_t is_fresh;   /* the results overlap no other memory, so no check is needed */
    uint8_t words;      /* enum hc_words_of: the caller's, for errors */
    int32_t root;       /* if the operation has a root */
    double prescale, postscale;
    uint32_t n;            /* arrays */
    hc_operand *operands;  /* of array k: 2k its input, 2k + 1 its result */
    const int64_t *splits; /* rows for each rank; NULL: even, or as even as possible */
    int64_t nsplits;
    uint32_t calls;                       /* calls with this name in a compiled program; 0: unknown */
    const struct hc_user_reduction *user; /* a reduction of the program; NULL: none */
} hc_arguments;

/* This rank in the process set of the operation. */
typedef struct hc_place {
    uint32_t set;
    int32_t rank, size;
} hc_place;

static inline int hc_arguments_has(const hc_arguments *a, int trait) {
    return (a->traits & trait) != 0;
}

/* 1: it needs the whole shape of this rank's inputs. 0: it uses only their dtype and row shape. */
static inline int hc_arguments_gives(const hc_arguments *a, const hc_place *place) {
    return !hc_arguments_has(a, HC_OP_COUNTS) || hc_operation_gives(a->operation, a->root, place->rank);
}

/* 1: this rank gets a result. */
static inline int hc_arguments_gets(const hc_arguments *a, const hc_place *place) {
    return hc_operation_gets(a->operation, a->root, place->rank);
}

/* 1: the operation cuts, counts or concatenates rows of the first dimension. */
static inline int hc_arguments_by_rows(const hc_arguments *a) {
    return !hc_arguments_has(a, HC_OP_ELEMENTWISE) &&
           (hc_arguments_has(a, HC_OP_ROWS_DIFFER) || hc_arguments_has(a, HC_OP_REDUCES));
}

/* Default arguments of an operation, without arrays. */
static inline hc_arguments hc_arguments_of(uint8_t operation) {
    return (hc_arguments){
        .traits = operation < HC_OPERATION_COUNT ? hc_operation_traits[operation] : 0,
        .operation = operation,
        .reduction = HC_SUM,
        .wire = HC_WIRE_SAME,
        .root = -1,
        .prescale = 1.0,
        .postscale = 1.0,
    };
}

void hc_operand_clear(hc_operand *);        /* makes it an absent array */
void hc_operand_measure(hc_operand *);      /* sets count and bytes from dtype and dims */
int64_t hc_operand_row(const hc_operand *); /* elements per row */
int64_t hc_arguments_result_bytes(const hc_arguments *, const hc_place *, uint32_t at); /* of array `at` */

/* Lists the memory that the call reads and writes on this rank: up to two extents per array. Returns their number. */
size_t hc_arguments_extents(const hc_arguments *, const hc_place *, hc_extent *);

/* Refuses arrays of which some lie in host memory and some on a device: OK, or INVALID and why. [any thread] */
int hc_arguments_one_memory(const hc_arguments *, const hc_place *, char why[HC_WHY]);
/* Makes all other checks that need no other rank, before anything is sent: OK, or a status and why, without the name of
 * the operation. Sets `wire` to HC_WIRE_SAME if the arrays have that type. [any thread] */
int hc_arguments_check(hc_arguments *, const hc_place *, char why[HC_WHY]);
/* Writes checked arguments into a request, with a copy of the name; NULL: no memory. [any thread] */
hc_handle *hc_arguments_request(const hc_arguments *, const hc_place *, const char *name, size_t name_len);
/* The same for a shortcut (loop/shortcut.c). 0: it needs a request. [any thread] */
int hc_arguments_shortcut(const hc_arguments *, const hc_place *, const hc_order *, hc_shortcut_call *);
