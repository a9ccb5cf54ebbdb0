# SPDX-License-Identifier: Apache-2.0
# set_agreement.pxi - the agreement of ranks on process sets (world/set_agreement.h), by exchanges of any kind.

@cython.final
cdef class Meeting:
    """The allgather of bytes that C calls for an agreement; Python makes it."""
    cdef object exchange  # takes a name and this rank's bytes (1-d uint8); returns those of all ranks
    cdef object error     # exception of the last exchange, or None
    cdef int size


cdef int meet(void *of, const char *name, const void *mine, size_t nbytes, void *everything) noexcept:
    """The callback of hc_exchange. Its caller holds the GIL."""
    cdef Meeting meeting = <Meeting>of
    cdef hc_operand received
    try:
        gathered = meeting.exchange(name.decode(), np.frombuffer((<const char *>mine)[:nbytes], np.uint8))
        if not read_plain(gathered, &received, False) or received.nbytes != nbytes * <size_t>meeting.size:
            return HC_RESULT_SIZE
        memcpy(everything, received.data, received.nbytes)
    except BaseException as error:
        meeting.error = error
        return HC_BROKEN
    return HC_OK


def agree_on_sets(Loop loop, str name, tuple ranks, int own, list row, int64_t digest, exchange):
    """Agree on process sets with the ranks that call this.

    :param name: of the exchange
    :param ranks: World rank of each rank that calls this; `own`: the index of this one
    :param row: [1, key, color]; [0, 0, 0]: this rank gets no set; [-1, 0, 0]: its key or color has no 64 bits
    :param digest: of the arguments that are the same on all ranks
    :param exchange: an allgather of bytes: takes a name and this rank's bytes, returns those of all ranks (1-d uint8)
    :returns: (number, generation, World ranks of this rank's set, all ranks in a set as indices of `ranks`); the
        outcome "differ" or "unfit" in their place
    """
    cdef Meeting meeting = Meeting.__new__(Meeting)
    cdef hc_sets_call call
    cdef hc_sets_made made
    cdef hc_exchange c
    cdef char why[HC_WHY]
    cdef int32_t *c_ranks = copy_ranks(ranks)
    meeting.exchange, meeting.size = exchange, len(ranks)
    c.allgather, c.of = meet, <void *>meeting
    cdef bytes named = name.encode()
    call.name, call.ranks, call.size, call.own = named, c_ranks, len(ranks), own
    call.colored, call.key, call.color, call.unfit = row[0] > 0, row[1], row[2], row[0] < 0
    call.digest = <uint64_t>digest
    cdef int status = hc_sets_agree(&loop.job, &call, &c, &made, why)
    try:
        if meeting.error is not None:
            raise meeting.error
        if status == HC_RESULT_SIZE:
            raise errors.StartError(f"{name.removeprefix('hpccoll.')}: a rank has joined, and answers no more")
        if status < 0:
            raise errors.StartError((<bytes>why).decode("utf-8", "replace"))
        if status != HC_SETS_MADE:
            return "differ" if status == HC_SETS_DIFFER else "unfit"
        return (made.number, made.generation, tuple([made.members[i] for i in range(made.size)]),
                [made.inside[i] for i in range(made.ninside)])
    finally:
        free(made.members)
        free(c_ranks)
