# SPDX-License-Identifier: Apache-2.0
# jobs.pxi - the numbers that the process sets and plans of a job use, in whatever languages they are made.

def newest_generation(Loop loop):
    """The generation of the newest process set or plan of this rank: numbers come again, generations do not."""
    return hc_job_used(&loop.job).generation


def note_generation(Loop loop, uint32_t generation):
    """There is a newer process set or plan."""
    hc_job_note_generation(&loop.job, generation)


def free_set_numbers(Loop loop):
    """Bit n: this rank is in no process set of number n."""
    cdef hc_set_numbers numbers = hc_job_free_sets(&loop.job)
    return sum([<object>numbers.bits[word] << 64 * word for word in range(HC_MAX_SETS // 64)])


def take_set_number(Loop loop, int number):
    """This rank is in a process set of that number."""
    hc_job_take_set_number(&loop.job, number)


def give_set_number_back(Loop loop, int number):
    """It has ended."""
    hc_job_give_set_number_back(&loop.job, number)


def plans_between_nodes(Loop loop):
    """How many plans of this rank have tags between nodes."""
    cdef hc_plans_used used = hc_job_used(&loop.job)
    return hc_plans_between_nodes(&used)
