# SPDX-License-Identifier: Apache-2.0
# jobs.pxi - the numbers of a job's process sets and plans, which programs of any language share.

def newest_generation(Loop loop):
    """The generation of the newest process set or plan of this rank: numbers are reused, generations are not."""
    return hc_job_used(&loop.job).generation


def note_generation(Loop loop, uint32_t generation):
    """Record the generation of a new process set or plan."""
    hc_job_note_generation(&loop.job, generation)


def give_set_number_back(Loop loop, int number):
    """Mark a set number as free on this rank."""
    hc_job_give_set_number_back(&loop.job, number)


def plans_between_nodes(Loop loop):
    """Return the number of this rank's plans with tags between nodes."""
    cdef hc_plans_used used = hc_job_used(&loop.job)
    return hc_plans_between_nodes(&used)
