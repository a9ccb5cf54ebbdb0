# SPDX-License-Identifier: Apache-2.0
# shortcut.pxi - unnamed blocking calls of few bytes, from arguments to result without a request.
#
# calls.pxi handles unusual and invalid arguments.

cdef object AGREE = object()  # no shortcut: the ranks agree on the call in the engine


def shortcut_bytes(int ranks):
    """The most bytes that each of so many ranks of a node gives to a call that takes the shortcut; 0: none takes it."""
    return hc_shortcut_bytes(ranks) if ranks <= HC_SHORTCUT_MOST else 0


def vote_bytes(int nodes):
    """The most bytes of a call on which so many nodes vote; -1: they do not vote."""
    return HC_VOTE_BYTES if nodes <= HC_VOTE_NODES else -1


cdef object take_shortcut(Set own, int code, object x, object out, object op, object root, object splits,
                          object prescale, object postscale):
    """Return the result if all ranks took the shortcut, or AGREE."""
    cdef hc_arguments given = hc_arguments_of(code)
    cdef hc_operand two[2]
    cdef hc_shortcut_call call
    cdef char why[HC_WHY]
    cdef int state
    cdef bytearray counts
    own.tried = False
    if own.closed or own.loop.closed or own.loop.forked or own.loop.watched:
        return AGREE
    if not hc_order_may_shorten(own.order, 0) or hc_in_flight_any(&own.loop.job.in_flight):
        return AGREE
    given.operands = two
    if hc_arguments_has(&given, HC_OP_ROOTED):
        if type(root) is not int or not 0 <= root < own.size:
            return AGREE
        given.root = root
    if splits is not None and hc_arguments_gives(&given, &own.place):
        counts = counts_of(splits)
        given.splits = <const int64_t *>PyByteArray_AS_STRING(counts)
        given.nsplits = len(counts) // <Py_ssize_t>sizeof(int64_t)
    result = read_shortcut(own, &given, x, out, op, prescale, postscale)
    if result is AGREE or hc_arguments_check(&given, &own.place, why) < 0:
        return AGREE
    if not hc_arguments_shortcut(&given, &own.place, own.order, &call):
        return AGREE
    if hc_arguments_has(&given, HC_OP_RESULT_ALLOCATED) and not call.is_large and not has_reserve(own):
        return AGREE
    if own.order.votes is not NULL:
        state = await_votes(own, &call, code, x, out, op, root, splits, prescale, postscale)
    else:
        state = hc_loop_shortcut(own.loop.c, own.number, own.order.shortcut, &call)
        if state == HC_SHORTCUT_OPEN:
            state = await_others(own, &call)
    own.tried = state != HC_SHORTCUT_TAKEN and state != HC_SHORTCUT_LARGE
    if state != HC_SHORTCUT_TAKEN:
        return AGREE
    if hc_arguments_has(&given, HC_OP_RESULT_ALLOCATED):
        return take_rows(own, &given, &call, out if x is None else x, result)
    hc_loop_shortcut_end(own.loop.c, own.order.shortcut, &call)
    return result


cdef object read_shortcut(Set own, hc_arguments *given, object x, object out, object op, object prescale,
                          object postscale):
    """Fill in the arguments. Returns the call's result (None: not known yet, or none on this rank), or AGREE."""
    cdef hc_operand *i = given.operands
    cdef hc_operand *o = i + 1
    if hc_arguments_has(given, HC_OP_NO_TENSORS):
        return None
    if not read_values(own, given, out if x is None else x):
        return AGREE
    if hc_arguments_has(given, HC_OP_REDUCES):
        given.reduction = reduction_of(op)
        if given.reduction == HC_REDUCTION_COUNT:
            return AGREE
        given.prescale, given.postscale = factor_of(prescale, b"prescale"), factor_of(postscale, b"postscale")
    if not hc_arguments_gets(given, &own.place):
        hc_operand_clear(o)
        return None
    if out is None:
        given.is_fresh = True
        if hc_arguments_has(given, HC_OP_RESULT_ALLOCATED):
            hc_operand_clear(o)
            return None
        out = empty((hc_share(i.dims[0], own.size, own.rank), *x.shape[1:]), x.dtype) if hc_arguments_by_rows(given) \
            else empty_like(x)
    elif type(out) is not ndarray:
        return AGREE
    return out if read_plain(out, o, True) and is_result(own, given) else AGREE


cdef int read_values(Set own, hc_arguments *given, object x) except -1:
    """Read the input; on a rank that gives nothing, its dtype and row shape. 0: it needs a request."""
    cdef hc_operand *i = given.operands
    if type(x) is not ndarray or not read_plain(x, i, False):
        return 0
    if i.nbytes > HC_SHORTCUT_BYTES and not hc_arguments_has(given, HC_OP_ROWS_DIFFER):
        return 0
    given.n = 1
    if i.ndim == 0 and hc_arguments_by_rows(given):
        if hc_arguments_has(given, HC_OP_COUNTS) or not hc_arguments_has(given, HC_OP_ROWS_DIFFER):
            return 0
        i.ndim, i.dims[0] = 1, 1  # one row
    if not hc_arguments_gives(given, &own.place):
        i.count = i.nbytes = i.dims[0] = 0
    return 1


cdef bint is_result(Set own, const hc_arguments *given) noexcept:
    """Whether `out` has the result's dtype and shape, but for a number of rows that no rank knows yet."""
    cdef const hc_operand *i = given.operands
    cdef const hc_operand *o = i + 1
    cdef hc_operand rows
    if not hc_arguments_by_rows(given):
        return same_shape(o, i)
    if o.ndim == 0 or (hc_arguments_has(given, HC_OP_RESULT_ALLOCATED) and overlap(i, o)):
        return False
    rows = i[0]
    rows.dims[0] = hc_share(i.dims[0], own.size, own.rank) if hc_arguments_has(given, HC_OP_REDUCES) else o.dims[0]
    return same_shape(o, &rows)


cdef bint has_reserve(Set own) noexcept:
    """Whether a result whose rows are known only when the call was taken will have memory."""
    if own.reserve is NULL:
        own.reserve = hc_result_new(<size_t>own.size * hc_shortcut_bytes(own.size))
    return own.reserve is not NULL


cdef object take_rows(Set own, const hc_arguments *given, hc_shortcut_call *call, object like, object result):
    """Return the result of an operation whose rows are known only now: `result` is the caller's array, or None."""
    cdef const hc_shortcut *shortcut = own.order.shortcut
    cdef object from_each = None
    cdef int64_t *each = NULL
    cdef int64_t rows
    if hc_arguments_has(given, HC_OP_COUNTS) and not hc_arguments_has(given, HC_OP_ROOTED):
        from_each = empty(own.size, np.int64)
        each = <int64_t *>(<hc__ndarray *>from_each).data
    rows = hc_loop_shortcut_rows(shortcut, call, each)
    if result is None and hc_arguments_gets(given, &own.place):
        result = new_rows(own, given.operands, rows, like.dtype)
        call.out = (<hc__ndarray *>result).data
    hc_loop_shortcut_end(own.loop.c, shortcut, call)
    return result if from_each is None else (result, from_each)


cdef object new_rows(Set own, const hc_operand *like, int64_t rows, object dtype):
    cdef ResultMemory memory
    shape = (rows, *[like.dims[d] for d in range(1, like.ndim)])
    try:
        return empty(shape, dtype)
    except MemoryError:
        memory = ResultMemory.__new__(ResultMemory)
        memory.data, own.reserve = own.reserve, NULL
        memory.nbytes = rows * hc_operand_row(like) * <int64_t>hc_dtype_size(like.dtype)
        return ndarray(shape, dtype, memory)


cdef int await_others(Set own, const hc_shortcut_call *call) except -1:
    """Wait for late ranks, not for long. Meanwhile unnamed calls of other threads are refused."""
    cdef hc_loop *c = own.loop.c
    cdef hc_shortcut *shortcut = own.order.shortcut
    cdef bint held = hc_order_hold(own.order) == 0
    cdef int state
    own.in_shortcut = True
    own.loop.active += 1
    with nogil:
        state = hc_loop_shortcut_wait(c, shortcut, call)
    own.loop.active -= 1
    own.in_shortcut = False
    if held:
        hc_order_end(own.order)
    return state


cdef int await_votes(Set own, hc_shortcut_call *call, int code, object x, object out, object op, object root,
                     object splits, object prescale, object postscale) except -1:
    """The same for the ranks of other nodes, which may take long."""
    cdef hc_loop *c = own.loop.c
    cdef hc_votes *votes = own.order.votes
    cdef bint held = hc_order_hold(own.order) == 0
    cdef int state
    own.in_shortcut = True
    own.loop.active += 1
    try:
        with nogil:
            state = hc_loop_vote(c, own.number, votes, call, SLICE)
        while state == HC_SHORTCUT_OPEN:
            PyErr_CheckSignals()
            with nogil:
                state = hc_loop_vote_wait(c, votes, SLICE)
    except BaseException:
        leave_votes(own, code, x, out, op, root, splits, prescale, postscale)
        raise
    finally:
        own.loop.active -= 1
        own.in_shortcut = False
        if held:
            hc_order_end(own.order)
    if state < 0:
        own.loop.note_raised(state)
        raise error_of(state, hc_loop_vote_text(votes).decode("utf-8", "replace"))
    return state


cdef int count_request(Set own, Handle handle) except -1:
    """Let the ranks agree by their count on a blocking request without a name, if no shortcut has tried it."""
    global failures_known
    cdef hc_loop *c = own.loop.c
    cdef hc_order *order = own.order
    cdef hc_counting by
    cdef int state
    cdef bint tried = own.tried
    own.tried = False
    if tried or not own.shortens or order.shortcut is NULL or own.loop.watched or own.closed or \
            own.loop.forked or not hc_order_may_shorten(order, 1):
        return 0
    by.shortcut, by.votes, by.rank, by.size = order.shortcut, order.votes, own.rank, own.size
    own.loop.active += 1
    try:
        with nogil:
            state = hc_loop_count(c, &by, handle.c, SLICE)
        while state == HC_SHORTCUT_OPEN:
            PyErr_CheckSignals()
            with nogil:
                state = hc_loop_count_wait(c, &by, handle.c, SLICE)
    except BaseException:
        failures_known += 1  # this rank does not refuse the call
        handle.c.kind = HC_HANDLE_VOTED
        handle.voted = True
        own.enqueue(handle.c, True, False)
        own.note_interrupted(handle)
        raise
    finally:
        own.loop.active -= 1
    handle.voted = handle.c.kind == HC_HANDLE_COUNTED
    return 0


cdef int leave_votes(Set own, int code, object x, object out, object op, object root, object splits,
                     object prescale, object postscale) except -1:
    """Let a call go on whose wait a signal has ended: it ends with the votes, or as a request."""
    global failures_known
    cdef Call call = Call.__new__(Call)
    cdef Handle handle
    cdef hc_operand two[2]
    cdef bint unnamed = False
    failures_known += 1  # this rank does not refuse the call
    call.set = own
    call.read_options(OPERATIONS[code], op, root, prescale, postscale, None)
    if not call.has(HC_OP_NO_TENSORS):
        call.read_arrays(x, out, splits, two)
    cdef hc_handle *h = call.request(None, &unnamed)
    h.kind = HC_HANDLE_VOTED
    handle = own.submit(h, unnamed, False, call.held)
    handle.operation, handle.voted = code, True
    return own.note_interrupted(handle)
