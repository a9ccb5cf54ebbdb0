# SPDX-License-Identifier: Apache-2.0
# arguments.pxi - converts the arguments of operations, except arrays, for C.

cdef tuple MEMBERS = tuple(Reduction)  # in the order of their numbers


cdef inline int reduction_of(object op) except -1:
    cdef int code
    for code in range(HC_REDUCTION_COUNT):
        if op is MEMBERS[code] and code != HC_ADASUM:
            return code
    if hasattr(op, "fold"):
        return HC_REDUCTION_COUNT  # a UserReduction
    return reduction_given(op).code


cdef inline double factor_of(object x, const char *what) except? -1.0:
    """:param what: its name, in errors"""
    if type(x) is float:
        return x
    try:
        return x
    except (TypeError, OverflowError):
        raise errors.InvalidArgumentError(f"{what.decode()} is {x!r}: a factor is a number") from None


cdef inline int wire_of(object compression) except -1:
    cdef int code
    if compression is None:
        return HC_WIRE_SAME
    code = getattr(compression, "dtype_code", -1)
    if code != HC_FLOAT16 and code != HC_BFLOAT16:
        raise errors.InvalidArgumentError(
            f"compression is {compression!r}: use hpccoll.compression.FP16, hpccoll.compression.BF16 or None")
    return code


cdef bytearray counts_of(object splits):
    """The rows for each rank as an array of int64_t."""
    cdef bytearray counts
    cdef Py_ssize_t i
    try:
        given = [operator.index(n) for n in splits]
    except TypeError as error:
        raise errors.InvalidArgumentError(f"splits is not a list of integers, one per rank: {error}") from None
    counts = PyByteArray_FromStringAndSize(NULL, len(given) * sizeof(int64_t))
    for i, n in enumerate(given):
        if not -(1 << 63) <= n < 1 << 63:
            raise errors.InvalidArgumentError(f"splits[{i}] is {n}")
        (<int64_t *>PyByteArray_AS_STRING(counts))[i] = n
    return counts


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


cdef int check_strided(list outs) except -1:
    """Raise InvalidArgumentError if an out of a group overlaps another out, also if they are strided: those are written
    at the end. They may interleave, as the columns of a table do."""
    cdef list reaching = []  # earlier outs that end after the begin of the next
    extents = sorted([(*extent_of(out), at) for at, out in enumerate(outs) if type(out) is ndarray and out.size])
    for begin, end, at in extents:
        reaching = [(its_end, other) for its_end, other in reaching if its_end > begin]
        for _, other in reaching:
            if np.shares_memory(outs[at], outs[other]):
                raise errors.InvalidArgumentError(
                    f"array {max(at, other)} of the group shares memory with another one's out: each out needs memory "
                    "of its own, or that of its own input")
        reaching.append((end, at))
    return 0
