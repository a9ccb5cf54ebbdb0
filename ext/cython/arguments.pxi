# SPDX-License-Identifier: Apache-2.0
# arguments.pxi - what operations are called with, checked and written into requests.

cdef inline int reduction_of(object op) except -1:
    cdef int reduction
    try:
        reduction = op
    except TypeError:
        reduction = -1
    if reduction < 0 or reduction >= HC_REDUCTION_COUNT:
        raise errors.InvalidArgumentError(f"op is {op!r}: use one of hpccoll.{', hpccoll.'.join(REDUCTIONS)}")
    return reduction


cdef inline int check_reduction(int reduction, int dtype, double prescale, double postscale) except -1:
    if not hc_reduction_defined(reduction, dtype):
        raise errors.UnsupportedError(f"{REDUCTIONS[reduction]} of {DTYPES[dtype]} is not defined")
    if prescale == 1.0 and postscale == 1.0:
        return 0
    if reduction != HC_SUM and reduction != HC_AVERAGE:
        raise errors.UnsupportedError(f"prescale and postscale go with SUM and AVERAGE, not {REDUCTIONS[reduction]}")
    if dtype < HC_FLOAT16:
        raise errors.UnsupportedError(f"prescale and postscale are not defined for {DTYPES[dtype]}")
    return 0


cdef inline int wire_of(object compression, int dtype) except -1:
    cdef int code
    if compression is None:
        return HC_WIRE_SAME
    code = getattr(compression, "dtype_code", -1)
    if code != HC_FLOAT16 and code != HC_BFLOAT16:
        raise errors.InvalidArgumentError(
            f"compression is {compression!r}: use hpccoll.compression.FP16, hpccoll.compression.BF16 or None")
    if dtype == code:
        return HC_WIRE_SAME
    if dtype != HC_FLOAT32 and dtype != HC_FLOAT64:
        raise errors.UnsupportedError(f"compression {compression} is for float32 and float64, x is {DTYPES[dtype]}")
    return code


cdef inline int merge_wire(int so_far, int wire, Py_ssize_t at) except -1:
    if at and so_far != wire:
        raise errors.UnsupportedError("compression of a group whose arrays are only partly compressible")
    return wire


cdef inline int64_t row_of(const Operand *o) noexcept:
    cdef int64_t row = 1
    cdef int d
    for d in range(1, o.ndim):
        row *= o.dims[d]
    return row


cdef inline int64_t *put_tensor(hc_handle *h, Py_ssize_t at, int64_t *dims, const Operand *i, const Operand *o,
                                int64_t row) noexcept:
    """Write tensor `at` of the request; return where the next one's dims go."""
    cdef hc_tensor *tensor = &h.tensors[at]
    cdef hc_piece *piece = &h.pieces[at]
    memcpy(dims, i.dims, i.ndim * sizeof(int64_t))
    h.request.memory = i.memory
    tensor.dtype = i.dtype
    tensor.ndim = i.ndim
    tensor.dims = dims
    piece.data = i.data
    if o != NULL:
        piece.out, piece.out_capacity = o.data, o.nbytes
    piece.count = i.count
    piece.row = row
    piece.rows = i.dims[0] if i.ndim else 1
    return dims + i.ndim
