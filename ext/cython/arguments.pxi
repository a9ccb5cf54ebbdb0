# SPDX-License-Identifier: Apache-2.0
# arguments.pxi - checks the arguments of operations and writes them into requests.

cdef tuple MEMBERS = tuple(Reduction)  # in the order of their numbers


cdef inline int reduction_of(object op) except -1:
    cdef int code
    for code in range(HC_REDUCTION_COUNT):
        if op is MEMBERS[code] and code != HC_ADASUM:
            return code
    if hasattr(op, "begin"):
        return HC_REDUCTION_COUNT  # hpccoll.user_reductions: it knows what to do
    return reduction_given(op).code


cdef inline double factor_of(object x, str what) except? -1.0:
    if type(x) is float:
        return x
    try:
        return x
    except (TypeError, OverflowError):
        raise errors.InvalidArgumentError(f"{what} is {x!r}: a factor is a number") from None


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


cdef object check_splits(object splits, int64_t rows, int size, bint any_rows):
    """The rows for each rank. `any_rows`: None means as even as can be, which the data plane knows."""
    if splits is None:
        if any_rows:
            return None
        if rows % size:
            raise errors.InvalidArgumentError(
                f"alltoall without splits: {rows} rows are not divisible by {size} ranks")
        return [rows // size] * size
    try:
        splits = [operator.index(n) for n in splits]
    except TypeError as error:
        raise errors.InvalidArgumentError(f"splits is not a list of {size} integers: {error}") from None
    if len(splits) != size or min(splits) < 0 or sum(splits) != rows:
        raise errors.InvalidArgumentError(
            f"splits {splits} are not {size} counts (one per rank) with the sum {rows} (the rows of x)")
    return splits


DEF ANY_TAG = -1


cdef int check_p2p(bint receives, object peer, object tag, int size) except -1:
    if not PyIndex_Check(peer) or not HC_NO_PEER <= peer < size or (peer == HC_ANY_PEER and not receives):
        raise errors.InvalidArgumentError(
            f"{'source' if receives else 'dest'} is {peer!r}: the World has ranks 0 to {size - 1}"
            + (", ANY_SOURCE is -1" if receives else "") + ", and PROC_NULL is -2")
    if not PyIndex_Check(tag) or not (ANY_TAG if receives else 0) <= tag < 1 << 32:
        raise errors.InvalidArgumentError(
            f"tag is {tag!r}: a tag is a number from 0 to {(1 << 32) - 1}"
            + (", and ANY_TAG is -1" if receives else ""))
    return 0


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
    tensor.type, tensor.type_len = i.type, (<uint8_t>strlen(i.type) if i.type is not NULL else 0)
    piece.data = i.data
    piece.out, piece.out_capacity = o.data, o.nbytes
    piece.count = i.count
    piece.row = row
    piece.rows = i.dims[0] if i.ndim else 1
    return dims + i.ndim


cdef int check_group(const Operand *operands, Py_ssize_t n) except -1:
    """Raise InvalidArgumentError if an output lies over another array of its group; they are in turns x and out."""
    cdef Py_ssize_t at, many = 0
    cdef int bad
    cdef const Operand *o
    cdef hc_extent *extents = <hc_extent *>malloc(2 * n * sizeof(hc_extent))
    if extents is NULL:
        raise errors.OutOfMemoryError(f"no memory for a group of {n} arrays; nothing was sent")
    for at in range(2 * n):
        o = &operands[at]
        if o.nbytes and (at % 2 or o.data != operands[at + 1].data):
            extents[many] = hc_extent(o.data, o.data + o.nbytes, at % 2, <int>(at // 2))
            many += 1
    bad = hc_extents_conflict(extents, many)
    free(extents)
    return 0 if bad < 0 else refuse_in_group(bad)


cdef int check_strided(list outs) except -1:
    """The same for the caller's outs among each other: those that are not contiguous are written at the end.

    They may interleave, as the columns of a table do.
    """
    cdef list reaching = []  # outs so far that end behind where the next one begins
    extents = sorted([(*extent_of(out), at) for at, out in enumerate(outs) if type(out) is ndarray and out.size])
    for begin, end, at in extents:
        reaching = [(its_end, other) for its_end, other in reaching if its_end > begin]
        for _, other in reaching:
            if np.shares_memory(outs[at], outs[other]):
                refuse_in_group(max(at, other))
        reaching.append((end, at))
    return 0


cdef int refuse_in_group(int at) except -1:
    raise errors.InvalidArgumentError(
        f"array {at} of the group shares memory with another one's out: "
        "each out needs memory of its own, or that of its own x")
