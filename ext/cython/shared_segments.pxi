# SPDX-License-Identifier: Apache-2.0
# shared_segments.pxi - segments that ranks make together (world/segments.h).

def node_control_segment(Loop loop, gather):
    """Make the node control segment of each node. All ranks call this; a failure is a StartError on all of them.

    :param gather: an allgather over them, as hpccoll.rendezvous.gather_bytes() makes it
    """
    cdef Segment segment = Segment()
    cdef Exchange exchange = exchange_of(gather, loop.size)
    cdef hc_exchange c = exchange.c()
    cdef char why[HC_EXCHANGE_WHY]
    exchange.check(hc_node_control_segment(&loop.job, &c, &segment.c, why), why)
    return segment


def first_set_segment(Loop loop, gather):
    """Make the segments of the process set of all ranks, likewise."""
    cdef Segment segment = Segment()
    cdef Exchange exchange = exchange_of(gather, loop.size)
    cdef hc_exchange c = exchange.c()
    cdef char why[HC_EXCHANGE_WHY]
    cdef size_t nbytes = hc_shm_bytes(loop.local_size)
    exchange.check(hc_members_segment(&loop.job, &c, "0", NULL, loop.size, nbytes, &segment.c, why), why)
    return segment


def members_segment(Set own, str what, size_t nbytes):
    """Make a segment of the members of a process set on each node.

    :param what: unique among the segments of a member, for the name
    """
    cdef Segment segment = Segment()
    cdef Exchange exchange = exchange_in(own)
    cdef hc_exchange c = exchange.c()
    cdef char why[HC_EXCHANGE_WHY]
    cdef int status = hc_members_segment(&own.loop.job, &c, what.encode(), own.where.ranks, own.size, nbytes,
                                         &segment.c, why)
    exchange.check(status, why)
    hc_segment_close_file(&segment.c)  # a program may have more plans than files
    return segment
