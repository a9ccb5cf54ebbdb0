# SPDX-License-Identifier: Apache-2.0
# set_agreement.pxi - the agreement of ranks on process sets (world/set_agreement.h), by exchanges of any kind.

def agree_on_sets(Loop loop, str name, tuple ranks, int own, list row, bint crowded, int64_t digest,
                  exchange):
    """Agree on process sets with the ranks that call this.

    :param name: of the exchange
    :param ranks: World rank of each rank that calls this; `own`: the index of this one
    :param row: [1, key, color]; [0, 0, 0]: this rank gets no set; [-1, 0, 0]: its key or color has no 64 bits
    :param crowded: another thread of this rank makes sets of the same ranks: an error on all of them
    :param digest: of the arguments that are the same on all ranks
    :param exchange: an allgather of bytes: takes a name and this rank's bytes, returns those of all ranks (1-d uint8)
    :returns: (number, generation, World ranks of this rank's set, all ranks in a set as indices of `ranks`); the
        outcome "differ" or "unfit" in their place
    """
    cdef Exchange gathered = exchange_of(exchange, len(ranks))
    cdef hc_exchange c = gathered.c()
    cdef hc_sets_call call
    cdef hc_sets_made made
    cdef char why[HC_WHY]
    if loop.closed or loop.forked:  # the numbers of process sets, which are offered first, are in its memory
        loop.refuse()
    cdef int32_t *c_ranks = copy_ranks(ranks)
    cdef bytes named = name.encode()
    call.name, call.ranks, call.size, call.own = named, c_ranks, len(ranks), own
    call.colored, call.key, call.color, call.unfit = row[0] > 0, row[1], row[2], row[0] < 0
    call.crowded = crowded
    call.digest = <uint64_t>digest
    cdef int status = hc_sets_agree(&loop.job, &call, &c, &made, why)
    try:
        if gathered.error is not None:
            raise gathered.error
        if status == HC_RESULT_SIZE:
            raise errors.StartError(f"{name.removeprefix('hpccoll.')}: a rank has joined, and answers no more")
        if status < 0:
            raise (errors.InvalidArgumentError if status == HC_INVALID else errors.StartError)(
                (<bytes>why).decode("utf-8", "replace"))
        if status != HC_SETS_MADE:
            return "differ" if status == HC_SETS_DIFFER else "unfit"
        return (made.number, made.generation, tuple([made.members[i] for i in range(made.size)]),
                [made.inside[i] for i in range(made.ninside)])
    finally:
        free(made.members)
        free(c_ranks)
