# SPDX-License-Identifier: Apache-2.0
# jobs.pxi - the numbers of a job's process sets and plans, which programs of any language share.

def give_set_number_back(Loop loop, int number):
    """Mark a set number as free on this rank."""
    hc_job_give_set_number_back(&loop.job, number)


def plans_between_nodes(Loop loop):
    """Return the number of this rank's plans with tags between nodes."""
    cdef hc_plans_used used = hc_job_used(&loop.job)
    return hc_plans_between_nodes(&used)
