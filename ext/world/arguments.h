/* SPDX-License-Identifier: Apache-2.0
 *
 * arguments.h - the arguments of one operation, from whatever language: checked, and written into a request.
 *
 * Python (ext/cython), C and Fortran (ext/api) and compiled programs (ext/gate) translate theirs into these structs.
 * What differs between operations is asked of their traits (core/hc.h).
 */
#ifndef HC_ARGUMENTS_H
#define HC_ARGUMENTS_H

#include "core/hc.h"
#include "loop/loop.h"

/* A contiguous array. One that is not there has no data, no dimensions and no elements. */
typedef struct hc_operand {
    char *data;
    int64_t count, bytes; /* count -1: the dimensions are negative, or their product is too large */
    int dtype, ndim, memory;
    const char *type; /* what dtype and dims do not say, as of elements that move as bytes; NULL: nothing */
    int64_t dims[HC_MAX_DIMS];
} hc_operand;

typedef struct hc_arguments {
    uint16_t traits;   /* of the operation */
    uint8_t operation; /* enum hc_operation */
    uint8_t reduction; /* enum hc_reduction; HC_REDUCTION_COUNT: a function of the program, which its caller checks */
    uint8_t wire;     /* dtype between nodes, or HC_WIRE_SAME; checked: HC_WIRE_SAME where the arrays have it already */
    uint8_t is_group; /* the arrays are agreed, fused and done together */
    uint8_t is_last;  /* this rank asks for nothing after it */
    uint8_t is_fresh; /* the results have memory of their own, which nobody else knows */
    int32_t root;     /* where there is one */
    double prescale, postscale;
    uint32_t n;            /* arrays */
    hc_operand *operands;  /* of array k: 2k its input, 2k + 1 where its result goes */
    const int64_t *splits; /* rows for each rank; NULL: as many for each, or as even as can be */
    int64_t nsplits;
    uint32_t calls; /* of this name in a compiled program; 0: not known */
} hc_arguments;

/* This rank in the process set that the operation is for. */
typedef struct hc_place {
    uint32_t set;
    int32_t rank, size;
} hc_place;

#define HC_WHY 256 /* bytes of a sentence that says what is wrong */

static inline int hc_arguments_has(const hc_arguments *a, int trait) {
    return (a->traits & trait) != 0;
}

/* This rank's values are asked for; if not, its inputs only say dtype and row. */
static inline int hc_arguments_gives(const hc_arguments *a, const hc_place *place) {
    return !hc_arguments_has(a, HC_OP_ROOTED) || !hc_arguments_has(a, HC_OP_COUNTS) || a->root == place->rank;
}

/* This rank gets a result. */
static inline int hc_arguments_gets(const hc_arguments *a, const hc_place *place) {
    return !hc_arguments_has(a, HC_OP_TO_ROOT) || a->root == place->rank;
}

/* Rows are cut, counted or concatenated: the first dimension means something. */
static inline int hc_arguments_by_rows(const hc_arguments *a) {
    return !hc_arguments_has(a, HC_OP_ELEMENTWISE) &&
           (hc_arguments_has(a, HC_OP_ROWS_DIFFER) || hc_arguments_has(a, HC_OP_REDUCES));
}

/* Those of an operation without arrays, with the values of what is not said. */
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

void hc_operand_clear(hc_operand *);        /* there is no array */
void hc_operand_measure(hc_operand *);      /* count and bytes, from dtype and dims */
int64_t hc_operand_row(const hc_operand *); /* elements of a row */
int64_t hc_arguments_result_bytes(const hc_arguments *, const hc_place *, uint32_t at); /* of its place in memory */

/* Says all that can be wrong on this rank alone, before anything is sent: OK, or a status and why, without the name of
 * the operation. Finds out about `wire`. [any thread] */
int hc_arguments_check(hc_arguments *, const hc_place *, char why[HC_WHY]);
/* Writes checked arguments into a request, with a copy of the name; NULL: no memory. [any thread] */
hc_handle *hc_arguments_request(const hc_arguments *, const hc_place *, const char *name, size_t name_len);
/* The same for a shortcut (loop/shortcut.c). 0: it needs a request. [any thread] */
int hc_arguments_shortcut(const hc_arguments *, const hc_place *, hc_shortcut_call *);

#endif
