/* SPDX-License-Identifier: Apache-2.0
 *
 * ndarray.h - reads the fields of a NumPy array in place.
 *
 * The buffer protocol costs 600 instructions per array, half of a small call. The beginning of these two structs is
 * part of the ABI of NumPy (PyArrayObject_fields and the descriptor) and is the same in NumPy 1 and 2.
 * NumPy's headers would tie the build to one version. At import operands.pxi compares this with the buffer protocol,
 * and uses only the latter if they differ.
 */
#pragma once

#include <Python.h>

#include "core/hc.h"

typedef struct hc__ndarray_descr {
    PyObject_HEAD PyTypeObject *typeobj;
    char kind, type, byteorder, flags;
    int type_num;
} hc__ndarray_descr;

typedef struct hc__ndarray {
    PyObject_HEAD char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base;
    hc__ndarray_descr *descr;
    int flags;
} hc__ndarray;

#define HC__NDARRAY_CONTIGUOUS 0x1 /* in the order of C */
#define HC__NDARRAY_ALIGNED 0x100
#define HC__NDARRAY_WRITEABLE 0x400
#define HC__NDARRAY_WARNS (1u << 31) /* when it is written to */

/* NumPy's type numbers. */
static const signed char hc__ndarray_dtypes[24] = {
    [0] = HC_BOOL,     [1] = HC_INT8,  [2] = HC_UINT8,      [3] = HC_INT16,
    [4] = HC_UINT16,   [5] = HC_INT32, [6] = HC_UINT32,     [7] = HC_INT64,
    [8] = HC_UINT64,   [9] = HC_INT64, [10] = HC_UINT64,    [11] = HC_FLOAT32,
    [12] = HC_FLOAT64, [13] = -1,      [14] = HC_COMPLEX64, [15] = HC_COMPLEX128,
    [16] = -1,         [17] = -1,      [18] = -1,           [19] = -1,
    [20] = -1,         [21] = -1,      [22] = -1,           [23] = HC_FLOAT16};

/* The dtype's code; -1: no code, or only the buffer protocol can read the array. */
static inline int hc__ndarray_dtype(const hc__ndarray *x, int writable) {
    unsigned wanted = HC__NDARRAY_CONTIGUOUS | HC__NDARRAY_ALIGNED | (writable ? HC__NDARRAY_WRITEABLE : 0);
    unsigned flags = (unsigned)x->flags;
    if ((flags & wanted) != wanted || (writable && flags & HC__NDARRAY_WARNS) || x->nd > HC_MAX_DIMS)
        return -1;
    const hc__ndarray_descr *descr = x->descr;
    if ((descr->byteorder != '=' && descr->byteorder != '|') || descr->type_num < 0 || descr->type_num > 23)
        return -1;
    return hc__ndarray_dtypes[descr->type_num];
}
