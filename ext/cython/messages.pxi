# SPDX-License-Identifier: Apache-2.0
# messages.pxi - messages whose caller waits for several of them at once.
#
# A caller that waits drives, and would wake others whenever it stops: so it waits once, for all.


cdef object read_receiver(Loop loop, object x, Operand *o, list copies):
    """read_target() of a message."""
    target = read_target(loop, x, o, copies, "x")
    if type(target) is Buffer and o.memory:
        loop.check_device(<Buffer>target)
    return target


cdef int wait_for(Loop loop, hc_handle **handles, size_t n) except -1:
    while not loop.drive(handles, n, SLICE):
        PyErr_CheckSignals()
    return 0


cdef Handle send_and_receive(Set own, object x, object dest, object sendtag, object out, object source,
                             object recvtag):
    """Set.sendrecv(). The receive is posted first: then a message that comes early needs no copy."""
    cdef Operand i, o
    cdef list copies = []
    cdef hc_handle *both[2]
    given, target = read_message(own.loop, x, &i), out
    if not read_plain(out, &o, True) or o.memory:
        target = read_receiver(own.loop, out, &o, copies)
    if hc_in_flight_any(&own.loop.in_flight):
        own.check_message(False, "x", &i, True)
        own.check_message(True, "out", &o, True)
    both[1] = own.new_message(False, dest, sendtag, &i, False, 0)
    try:
        both[0] = own.new_message(True, source, recvtag, &o, False, HC_P2P_EXACT if o.memory and copies else 0)
    except BaseException:
        hc_handle_release(both[1])
        raise
    cdef Handle received = own.submit(both[0], False, True, (target,) if o.memory else target)
    received.copies = copies
    cdef Handle sent = own.submit(both[1], False, True, (given,) if i.memory else given)
    wait_for(own.loop, both, 2)
    received.wait()
    sent.wait()
    return received


cdef int exchange_faces(Set own, list faces) except -1:
    """Set.exchange()."""
    cdef list handles = []
    cdef Handle handle
    cdef size_t n = 0
    cdef hc_handle **all_of_them = <hc_handle **>malloc((2 * len(faces) + 1) * sizeof(hc_handle *))
    if all_of_them is NULL:
        raise MemoryError
    try:
        for peer, _, tag, _, x in faces:
            handles.append(own.recv(x, peer, tag, True, True, True))
        for peer, tag, _, x, _ in faces:
            handles.append(own.send(x, peer, tag, True, True))
        for handle in handles:
            all_of_them[n] = handle.c
            n += 1
        wait_for(own.loop, all_of_them, n)
    finally:
        free(all_of_them)
    for handle in handles:
        handle.wait()
    return 0
