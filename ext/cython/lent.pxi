# SPDX-License-Identifier: Apache-2.0
# lent.pxi - shares a World with libhpccoll.so, for C code in the same process.

cdef extern from "api/python_world.h":
    """
    static const hc_loop_calls hc__calls_of_python = HC_LOOP_CALLS;
    static void hc__close(hc_python_world *world) { atomic_store(&world->closed, 1); }
    """
    ctypedef struct hc_loop_calls:
        pass
    ctypedef struct hc_python_world:
        hc_loop_calls calls
        hc_job *job
        uint64_t stop_timeout
        const int32_t *members
        int32_t rank, size
        uint32_t set
    hc_loop_calls hc__calls_of_python
    void hc__close(hc_python_world *)


cdef object share_with_c(Set own):
    """Make a capsule "hpccoll.world". Its struct is never freed: C code may read it after the World has ended."""
    cdef hc_python_world *shared = <hc_python_world *>calloc(1, sizeof(hc_python_world))
    if shared is NULL:
        raise errors.OutOfMemoryError("no memory for a request")
    shared.calls, shared.job, shared.set = hc__calls_of_python, &own.loop.job, own.number
    shared.rank, shared.size = own.rank, own.size
    shared.stop_timeout = nanoseconds(own.loop.settings.stop_timeout)
    shared.members = copy_ranks(own.members)
    capsule = PyCapsule_New(shared, "hpccoll.world", NULL)
    own.loop.shared.append((own.number, capsule))
    return capsule


cdef int end_sharing(Loop loop, int number) except -1:
    """Close the capsules of the process set of this number; -1: of all sets."""
    for of, capsule in loop.shared:
        if number < 0 or of == number:
            hc__close(<hc_python_world *>PyCapsule_GetPointer(capsule, "hpccoll.world"))
    loop.shared = [(of, capsule) for of, capsule in loop.shared if number >= 0 and of != number]
    return 0
