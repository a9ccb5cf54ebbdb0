# SPDX-License-Identifier: Apache-2.0
# plan_agreement.pxi - the agreement of the ranks on a plan (world/plan_agreement.h), by exchanges of their set.

@cython.final
cdef class Exchange:
    """The allgather of bytes that C calls for an agreement."""
    cdef object gather  # takes a name and this rank's bytes (1-d uint8); returns those of all ranks
    cdef int size
    cdef object error  # exception of the last call of it, or None

    cdef hc_exchange c(self):
        cdef hc_exchange exchange
        exchange.allgather, exchange.of = allgather_bytes, <void *>self
        return exchange


cdef Exchange exchange_of(gather, int size):
    cdef Exchange exchange = Exchange.__new__(Exchange)
    exchange.gather, exchange.size = gather, size
    return exchange


cdef Exchange exchange_in(Set own):
    return exchange_of(lambda name, data: own.collective("allgather", data, name, None, True).wait(), own.size)


cdef int allgather_bytes(void *of, const char *name, const void *mine, size_t nbytes, void *everything) noexcept:
    """The callback of hc_exchange. Its caller holds the GIL."""
    cdef Exchange exchange = <Exchange>of
    cdef hc_operand received
    try:
        data = np.frombuffer((<const char *>mine)[:nbytes], np.uint8)
        gathered = exchange.gather(name.decode(), data)
        if not read_plain(gathered, &received, False) or received.nbytes != nbytes * <size_t>exchange.size:
            return HC_RESULT_SIZE
        memcpy(everything, received.data, received.nbytes)
    except BaseException as error:
        exchange.error = error
        return HC_BROKEN
    return HC_OK


def refuse_plan(Set own, str operation, str why):
    """Tell the other ranks that this rank has refused its call; they get an error with the reason."""
    cdef Exchange exchange = exchange_in(own)
    cdef hc_exchange c = exchange.c()
    cdef bytes text = why.encode("utf-8", "replace")
    hc_plan_refuse(&c, own.size, CODES[operation], HC_INVALID, text)


cdef int agree_on_plan(Plan plan, Plan whole) except -1:
    """Agree on the plan's terms with all ranks, which all get the same error, if any."""
    cdef Exchange exchange = exchange_in(plan.set)
    cdef hc_exchange c = exchange.c()
    cdef hc_arguments barrier = hc_arguments_of(CODES["barrier"])
    cdef hc_plan_proposal proposal
    cdef char why[HC_WHY]
    cdef hc_plans_used used = hc_job_used(&plan.set.loop.job)
    proposal.given = &barrier if plan.is_barrier else &plan.call.given
    if plan.folding is not None:
        hc_folding_plan(plan.folding.c, &plan.folding.step)
        proposal.given = &plan.folding.step.arguments
    proposal.whole = &barrier if plan.is_barrier else &whole.call.given
    proposal.place, proposal.node_of, proposal.used = &plan.set.place, plan.set.where.nodes, &used
    cdef int status = hc_plan_agree(&proposal, &c, &plan.terms, why)
    if exchange.error is not None:
        raise exchange.error
    if status < 0:
        raise error_of(status, (<bytes>why).decode("utf-8", "replace"))
    return 0
