# SPDX-License-Identifier: Apache-2.0
# refusals.pxi - tells the other ranks of calls that this rank refuses, so that its next call matches their next call.


def failures():
    """Count the errors of this thread that the other ranks also get, or learn of. If a call raises an error and the
    number stays the same, only this rank has the error."""
    return failures_known


def hold_order(Set own):
    """Begin calls that the other ranks have in flight together: unnamed calls get consecutive numbers, even if this
    rank refuses some of them. Call release_order() afterwards."""
    own.finish_interrupted()
    if hc_order_hold(own.order) < 0:
        raise errors.InvalidArgumentError(HC_ORDER_REFUSAL.decode())


def release_order(Set own):
    """End the numbering of hold_order(); the caller may wait later for calls in flight."""
    hc_order_end(own.order)


cdef int announce_refusal(Set own, str operation, object name, object error) except -1:
    """Tell the other ranks. An unnamed call uses up its number in the order of the calls."""
    cdef hc_request refused
    cdef char next_name[HC_ORDER_NAME]
    cdef const char *text = next_name
    cdef Py_ssize_t length = 0
    if own.closed or own.loop.closed or own.loop.forked:
        return 0
    if isinstance(error, errors.DuplicateNameError):
        return 0  # the request of this name goes on
    if name is None:
        own.finish_interrupted()
        length = hc_order_refuse(own.order, next_name)
        if length < 0:
            return 0  # another thread has calls in flight, so the call has no number
    else:
        try:
            text = read_name(name, &length)
        except errors.InvalidArgumentError:
            return 0
    global failures_known
    failures_known += 1
    why = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    memset(&refused, 0, sizeof(refused))
    if name is None:
        refused.order = hc_order_count(own.order)
    refused.name, refused.name_len = text, <uint32_t>length
    refused.operation = CODES[operation]
    refused.why = why
    cdef hc_loop *c = own.loop.c
    cdef int number = own.number
    with nogil:
        hc_loop_refuse(c, number, &refused)
    return 0


cdef int announce_refusals(Set own, str operation, object name, object error, int requests) except -1:
    cdef int i
    if requests == 1:
        return announce_refusal(own, operation, name, error)
    own.finish_interrupted()
    if hc_order_hold(own.order) < 0:
        return 0  # calls of another thread are open, so these have no numbers
    for i in range(requests):
        announce_refusal(own, operation, name, error)
    release_order(own)
    return 0
