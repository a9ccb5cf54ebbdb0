# SPDX-License-Identifier: Apache-2.0
# messages.pxi - messages whose caller waits for several of them at once.
#
# A waiting caller drives, and wakes other threads when it stops, so it waits once for all messages.


cdef hc_operand no_array(const char *type_name) noexcept:
    """The operand of a message without memory."""
    cdef hc_operand o
    o.data, o.nbytes, o.memory = NULL, 0, HC_MEMORY_HOST
    o.dtype, o.type = HC_UINT8, type_name
    return o


cdef uint32_t context_of(bint library, uint32_t follows) noexcept:
    """Which receives a message may meet."""
    return HC_P2P_FOLLOWS + follows if follows else HC_P2P_LIBRARY if library else HC_P2P_USER


cdef object read_receiver(Loop loop, object x, hc_operand *o, list copies):
    """read_target() for a message."""
    target = read_target(loop, x, o, copies, "x")
    drop_type(x, o)
    if type(target) is Buffer and o.memory:
        loop.check_device(<Buffer>target)
    return target


cdef int claim_message(Set own, bint receives, str argument, const hc_operand *o, hc_handle *h) except -1:
    """Refuse memory that a request in flight uses; otherwise record it for the handle (NULL: the caller waits).

    If it fails, the handle is released.
    """
    cdef hc_extent extent
    cdef hc_claim claim
    if h is NULL and nothing_in_flight(own.loop):
        return 0
    extent.begin, extent.end, extent.writes, extent.array = o.data, o.data + o.nbytes, receives, 0
    claim.extents, claim.n, claim.operation, claim.handle = &extent, 1, -1, h
    if make_claim(own.loop, &claim, "a message"):
        raise shared_with(argument, &claim)
    return 0


cdef int check_apart(const hc_operand *i, const hc_operand *o, object dest, object source) except -1:
    """Raise InvalidArgumentError if the received message would overwrite the sent message."""
    if i.memory == o.memory and overlap(i, o) and dest != HC_NO_PEER and source != HC_NO_PEER:
        raise errors.InvalidArgumentError(
            "x and out of sendrecv share memory: what comes in would change what goes out; nothing was sent")
    return 0


cdef int wait_for(Loop loop, hc_handle **handles, size_t n) except -1:
    while not loop.drive(handles, n, SLICE):
        PyErr_CheckSignals()
    return 0


cdef int move_now(Set own, hc_handle **messages, tuple arrays) except -1:
    """Submit messages in host memory whose caller waits, and wait. Afterwards the caller releases them.

    They need a Handle only if the wait ends early or a message fails: it keeps the arrays, and raises the error.
    """
    cdef size_t at, n = len(arrays)
    cdef bint failed = False
    for at in range(n):
        hc_loop_submit(own.loop.c, messages[at], True)
    try:
        wait_for(own.loop, messages, n)
    except BaseException:
        hold(own, messages, arrays)
        raise
    for at in range(n):
        failed = failed or messages[at].status < 0
    if failed:
        for handle in hold(own, messages, arrays):
            handle.wait()
    return 0


cdef list hold(Set own, hc_handle **messages, tuple arrays):
    return [own.hold(messages[at], array) for at, array in enumerate(arrays)]


cdef tuple received(Set own, hc_handle *h):
    """The sender of a message, its tag and its bytes."""
    found = own.rank_in(h.op.peer), (-1 if h.op.peer < 0 and h.op.flags & HC_P2P_ANY_TAG else h.op.tag), h.op.received
    hc_handle_release(h)
    return found


cdef tuple received_by(Handle handle):
    handle.wait()
    return handle.peer, handle.tag, handle.nbytes


cdef bint is_direct(Set own, object x, hc_operand *o, bint writable) except -1:
    """Whether a message of this array uses only host memory."""
    return not own.loop.notes_sites and read_plain(x, o, writable) and not o.memory


cdef int send_now(Set own, object x, object dest, object tag) except -1:
    """Set.send_now()."""
    cdef hc_operand i
    cdef hc_handle *message
    if not is_direct(own, x, &i, False):
        own.send(x, dest, tag, True).wait()
        return 0
    claim_message(own, False, "x", &i, NULL)
    message = own.new_message(False, dest, tag, &i, HC_P2P_USER, 0)
    move_now(own, &message, (x,))
    hc_handle_release(message)
    return 0


cdef tuple receive_now(Set own, object x, object source, object tag):
    """Set.recv_now()."""
    cdef hc_operand o
    cdef hc_handle *message
    if not is_direct(own, x, &o, True):
        return received_by(own.recv(x, source, tag, True))
    claim_message(own, True, "x", &o, NULL)
    message = own.new_message(True, source, tag, &o, HC_P2P_USER, 0)
    move_now(own, &message, (x,))
    return received(own, message)


cdef tuple send_and_receive(Set own, object x, object dest, object sendtag, object out, object source,
                            object recvtag):
    """Set.sendrecv(). It posts the send first: the other rank waits for it."""
    cdef hc_operand i, o
    cdef list copies = []
    cdef hc_handle *both[2]
    cdef bint direct = is_direct(own, x, &i, False) and is_direct(own, out, &o, True)
    given, target = x, out
    if not direct:
        given = read_message(own.loop, x, &i)
        if not read_plain(out, &o, True) or o.memory:
            target = read_receiver(own.loop, out, &o, copies)
    claim_message(own, False, "x", &i, NULL)
    claim_message(own, True, "out", &o, NULL)
    check_apart(&i, &o, dest, source)
    both[0] = own.new_message(False, dest, sendtag, &i, HC_P2P_USER, 0)
    try:
        both[1] = own.new_message(True, source, recvtag, &o, HC_P2P_USER, HC_P2P_EXACT if o.memory and copies else 0)
    except BaseException:
        hc_handle_release(both[0])
        raise
    if direct:
        move_now(own, both, (x, out))
        hc_handle_release(both[0])
        return received(own, both[1])
    cdef Handle sent = own.submit(both[0], False, True, (given,) if i.memory else given)
    cdef Handle taken = own.submit(both[1], False, True, (target,) if o.memory else target)
    taken.copies = copies
    wait_for(own.loop, both, 2)
    found = received_by(taken)
    sent.wait()
    return found


cdef int exchange_faces(Set own, list faces) except -1:
    """Set.exchange()."""
    cdef list handles = []
    cdef Handle handle
    cdef size_t n = 0
    cdef hc_handle **all_of_them = <hc_handle **>malloc((2 * len(faces) + 1) * sizeof(hc_handle *))
    if all_of_them is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
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
    failed = None
    for handle in handles:  # all of them, as a handle without a wait() is one that the program has dropped
        try:
            handle.wait()
        except errors.HpccollError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return 0
