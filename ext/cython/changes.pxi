# SPDX-License-Identifier: Apache-2.0
# changes.pxi - changes that all members of a process set make at the same position of its log: a stop, other knobs.


cdef int ask_to_stop(Set own) except -1:
    cdef hc_handle *h
    if own.closed or own.loop.closed or own.loop.forked:
        return 0
    h = hc_handle_new(HC_EV_PREEMPT, own.number, 0, 0, NULL, 0, 0)
    if h is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
    own.shortens = False  # later calls must be agreed in the log, after this request, to see the stop
    hc_loop_submit(own.loop.c, h, 0)
    hc_handle_release(h)
    return 0


cdef int change_knobs(Set own, uint64_t fusion_threshold, uint64_t raise_bytes, double raise_window) except -1:
    cdef hc_handle *h
    if own.rank != 0:
        raise errors.InvalidArgumentError("only the first rank of a process set tunes it")
    if own.closed or own.loop.closed or own.loop.forked:
        return 0
    h = hc_handle_new(HC_EV_TUNE, own.number, 0, 0, NULL, 0, 3)
    if h is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
    h.rows[0], h.rows[1] = <int64_t>fusion_threshold, <int64_t>raise_bytes
    h.rows[2] = <int64_t>nanoseconds(raise_window)
    hc_loop_submit(own.loop.c, h, 0)
    hc_handle_release(h)
    return 0
