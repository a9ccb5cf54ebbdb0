# SPDX-License-Identifier: Apache-2.0
# refusals.pxi - tells the other ranks of calls that this rank refuses, so that its next call matches their next call.


def failures():
    """Count the errors of this thread that the other ranks also get, or learn of. If a call raises an error and the
    number stays the same, only this rank has the error."""
    return failures_known


def hold_order(Set own):
    """Begin calls that the other ranks have in flight together: unnamed calls get consecutive numbers, even if this
    rank refuses some of them. Call release_order() afterwards."""
    own.next_name()
    own.unnamed_open += 1


def release_order(Set own):
    """End the numbering of hold_order(); the caller may wait later for calls in flight."""
    own.unnamed_waited()


cdef int announce_refusal(Set own, str operation, object name, object error) except -1:
    """Tell the other ranks. An unnamed call uses up its number in the order of the calls."""
    cdef hc_request refused
    if own.closed or own.loop.closed or own.loop.forked:
        return 0
    if isinstance(error, errors.DuplicateNameError):
        return 0  # the request of this name goes on
    if name is None:
        name = own.refused_name()
    elif not isinstance(name, str) or (<str>name).startswith(UNNAMED):
        name = None
    if name is None:
        return 0
    global failures_known
    failures_known += 1
    why = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    text = (<str>name).encode("utf-8", "replace")
    memset(&refused, 0, sizeof(refused))
    refused.name, refused.name_len = text, <uint32_t>len(text)
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
    if own.unnamed_open and own.unnamed_thread != PyThread_get_thread_ident():
        return 0
    hold_order(own)
    for i in range(requests):
        announce_refusal(own, operation, name, error)
    release_order(own)
    return 0
