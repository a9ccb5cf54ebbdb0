# SPDX-License-Identifier: Apache-2.0
# lent.pxi - a World as libhpccoll.so gets it, for code of C in the same process.

cdef extern from "api/api.h":
    """
    static const hc_loop_calls hc__calls_of_python = {
        .version = HC_LOOP_CALLS_VERSION, .submit = hc_loop_submit, .wait = hc_loop_wait,
        .progress = hc_loop_progress, .pending = hc_loop_pending, .get_stats = hc_loop_get_stats,
        .refuse = hc_loop_refuse};
    static void hc__close(hc_python_world *world) { atomic_store(&world->closed, 1); }
    """
    ctypedef struct hc_loop_calls:
        pass
    ctypedef struct hc_python_world:
        hc_loop_calls calls
        hc_loop *loop
        const int32_t *node_of
        const int32_t *members
        int32_t loop_rank, loop_size, rank, size
        uint32_t set
    hc_loop_calls hc__calls_of_python
    void hc__close(hc_python_world *)


cdef object share_with_c(Set own):
    """A capsule "hpccoll.world". What it points to is never freed: code of C may ask it after the World has ended."""
    cdef hc_python_world *shared = <hc_python_world *>calloc(1, sizeof(hc_python_world))
    if shared is NULL:
        raise MemoryError
    shared.calls, shared.loop, shared.set = hc__calls_of_python, own.loop.c, own.number
    shared.loop_rank, shared.loop_size = own.loop.rank, own.loop.size
    shared.rank, shared.size = own.rank, own.size
    shared.node_of, shared.members = copy_ranks(own.loop.node_of), copy_ranks(own.members)
    capsule = PyCapsule_New(shared, "hpccoll.world", NULL)
    own.loop.shared.append((own.number, capsule))
    return capsule


cdef int end_sharing(Loop loop, int number) except -1:
    """The process set of this number has ended; -1: all have."""
    for of, capsule in loop.shared:
        if number < 0 or of == number:
            hc__close(<hc_python_world *>PyCapsule_GetPointer(capsule, "hpccoll.world"))
    loop.shared = [(of, capsule) for of, capsule in loop.shared if number >= 0 and of != number]
    return 0
