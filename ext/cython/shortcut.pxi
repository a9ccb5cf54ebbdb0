# SPDX-License-Identifier: Apache-2.0
# shortcut.pxi - blocking calls of few bytes without a name: from their arguments to their result, without a request.
#
# What is unusual about the arguments, or wrong with them, is left to calls.pxi.

cdef object AGREE = object()  # the ranks agree on the call in the engine


cdef object take_shortcut(Set own, int code, object x, object out, object op, object root, object prescale,
                          object postscale):
    """The result of a call with which all ranks have come, or AGREE."""
    cdef hc_shortcut_call call
    cdef int state, traits
    if own.unnamed_open or own.has_refused or own.closed or own.loop.closed or own.loop.forked or own.loop.watched:
        return AGREE
    if hc_in_flight_any(&own.loop.in_flight):
        return AGREE
    traits = TRAITS[code]
    memset(&call, 0, sizeof(call))
    call.agreed.operation = code
    call.agreed.root = -1
    call.agreed.prescale = call.agreed.postscale = 1.0
    if traits & HC_OP_ROOTED:
        if type(root) is not int or not 0 <= root < own.size:
            return AGREE
        call.agreed.root = root
    result = None
    if not traits & HC_OP_NO_TENSORS:
        result = read_shortcut(own, traits, &call, x, out, op, prescale, postscale)
        if result is AGREE:
            return AGREE
    state = hc_loop_shortcut(own.loop.c, own.number, own.shortcut, own.rank, &call)
    if state == HC_SHORTCUT_OPEN:
        state = await_others(own)
    if state != HC_SHORTCUT_TAKEN:
        return AGREE
    hc_loop_shortcut_end(own.loop.c, own.shortcut, own.rank, own.size, &call)
    return result


cdef object read_shortcut(Set own, int traits, hc_shortcut_call *call, object x, object out, object op,
                          object prescale, object postscale):
    """Write the arrays and the reduction into the call. Returns its result, or AGREE."""
    cdef Operand i, o
    cdef int d
    if type(x) is not ndarray or not read_plain(x, &i, False):
        return AGREE
    if i.nbytes > HC_SHORTCUT_BYTES or i.ndim > HC_SHORTCUT_DIMS or i.count == 0:
        return AGREE
    if traits & HC_OP_REDUCES:
        call.agreed.reduction = reduction_of(op)
        if call.agreed.reduction == HC_REDUCTION_COUNT:
            return AGREE
        call.agreed.prescale, call.agreed.postscale = factor_of(prescale, "prescale"), factor_of(postscale, "postscale")
        check_reduction(call.agreed.reduction, i.dtype, call.agreed.prescale, call.agreed.postscale)
    call.agreed.dtype, call.agreed.ndim = i.dtype, i.ndim
    for d in range(i.ndim):
        call.agreed.dims[d] = i.dims[d]
    call.data, call.count, call.nbytes = i.data, i.count, i.nbytes
    if traits & HC_OP_TO_ROOT and call.agreed.root != own.rank:
        return None
    if out is None:
        out = empty_like(x)
    elif type(out) is not ndarray:
        return AGREE
    if not read_plain(out, &o, True) or not same_shape(&o, &i) or (o.data != i.data and overlap(&i, &o)):
        return AGREE
    call.out = o.data
    return out


cdef int await_others(Set own) except -1:
    """The others are late. Another thread that makes a call without a name is refused meanwhile."""
    cdef hc_loop *c = own.loop.c
    cdef hc_shortcut *shortcut = own.shortcut
    cdef int state
    own.unnamed_thread = PyThread_get_thread_ident()
    own.unnamed_open += 1
    own.in_shortcut = True
    own.loop.active += 1
    with nogil:
        state = hc_loop_shortcut_wait(c, shortcut)
    own.loop.active -= 1
    own.in_shortcut = False
    own.unnamed_open -= 1
    return state
