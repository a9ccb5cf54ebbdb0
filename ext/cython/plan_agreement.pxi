# SPDX-License-Identifier: Apache-2.0
# plan_agreement.pxi - the agreement of the ranks on a plan (world/plan_agreement.h), by exchanges of their set.

cdef Exchange exchange_in(Set own):
    def gather(name, mine):
        return own.collective("allgather", np.frombuffer(mine, np.uint8), name, None, True).wait()

    return exchange_of(gather, own.size)


def refuse_plan(Set own, str operation, str why):
    """Tell the other ranks that this rank has refused its call; they get an error with the reason."""
    cdef Exchange exchange = exchange_in(own)
    cdef hc_exchange c = exchange.c()
    cdef bytes text = why.encode("utf-8", "replace")
    hc_plan_refuse(&c, CODES[operation], HC_INVALID, text)


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
