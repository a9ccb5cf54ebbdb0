# SPDX-License-Identifier: Apache-2.0
# shortcut.pxi - unnamed blocking calls of few bytes, from arguments to result without a request.
#
# calls.pxi handles unusual and invalid arguments.

cdef object AGREE = object()  # no shortcut: the ranks agree on the call in the engine


cdef object take_shortcut(Set own, int code, object x, object out, object op, object root, object prescale,
                          object postscale):
    """Return the result if all ranks took the shortcut, or AGREE."""
    cdef hc_arguments given = hc_arguments_of(code)
    cdef hc_operand two[2]
    cdef hc_shortcut_call call
    cdef char why[HC_WHY]
    cdef int state
    if own.closed or own.loop.closed or own.loop.forked or own.loop.watched:
        return AGREE
    if not hc_order_may_shorten(own.order, 0) or hc_in_flight_any(&own.loop.job.in_flight):
        return AGREE
    given.operands = two
    result = read_shortcut(own, &given, x, out, op, root, prescale, postscale)
    if result is AGREE or hc_arguments_check(&given, &own.place, why) < 0:
        return AGREE
    if not hc_arguments_shortcut(&given, &own.place, &call):
        return AGREE
    state = hc_loop_shortcut(own.loop.c, own.number, own.order.shortcut, own.rank, &call)
    if state == HC_SHORTCUT_OPEN:
        state = await_others(own)
    if state != HC_SHORTCUT_TAKEN:
        return AGREE
    hc_loop_shortcut_end(own.loop.c, own.order.shortcut, own.rank, own.size, &call)
    return result


cdef object read_shortcut(Set own, hc_arguments *given, object x, object out, object op, object root, object prescale,
                          object postscale):
    """Fill in the arguments. Returns the call's result, or AGREE."""
    cdef hc_operand *i = given.operands
    cdef hc_operand *o = i + 1
    if hc_arguments_has(given, HC_OP_ROOTED):
        if type(root) is not int or not 0 <= root < own.size:
            return AGREE
        given.root = root
    if hc_arguments_has(given, HC_OP_NO_TENSORS):
        return None
    if type(x) is not ndarray or not read_plain(x, i, False) or i.nbytes > HC_SHORTCUT_BYTES:
        return AGREE
    given.n = 1
    if hc_arguments_has(given, HC_OP_REDUCES):
        given.reduction = reduction_of(op)
        if given.reduction == HC_REDUCTION_COUNT:
            return AGREE
        given.prescale, given.postscale = factor_of(prescale, "prescale"), factor_of(postscale, "postscale")
    if not hc_arguments_gets(given, &own.place):
        hc_operand_clear(o)
        return None
    if out is None:
        given.is_fresh = True
        out = empty_like(x)
    elif type(out) is not ndarray:
        return AGREE
    return out if read_plain(out, o, True) and same_shape(o, i) else AGREE


cdef int await_others(Set own) except -1:
    """Wait for late ranks. Meanwhile unnamed calls of other threads are refused."""
    cdef hc_loop *c = own.loop.c
    cdef hc_shortcut *shortcut = own.order.shortcut
    cdef bint held = hc_order_hold(own.order) == 0
    cdef int state
    own.in_shortcut = True
    own.loop.active += 1
    with nogil:
        state = hc_loop_shortcut_wait(c, shortcut)
    own.loop.active -= 1
    own.in_shortcut = False
    if held:
        hc_order_end(own.order)
    return state
