# SPDX-License-Identifier: Apache-2.0
# planes.pxi - what moves the batches of one process set: its node, and the data plane over it.

cdef hc_node *new_node(Loop loop, tuple members, Segment segment) except NULL:
    """The node's part of the set's data plane. It owns the mapping from here on."""
    cdef hc_node *node = NULL
    cdef list here = ranks_of_node(loop.node_of, loop.rank)
    cdef set near = set(here)
    cdef list local_members = [m for m in members if m in near]
    cdef int32_t *local_ranks = copy_ranks([here.index(m) for m in local_members])
    cdef hc_segment taken = segment.c
    segment.c.base = NULL
    segment.c.fd = -1
    cdef int status = hc_shm_node_new(
        taken, loop.node_control, local_ranks, local_members.index(loop.rank), len(local_members), &node)
    free(local_ranks)
    check(status, "the node's data plane could not be made")
    return node


cdef int describe_hierarchy(Set own, int number, const int32_t *members, const int32_t *nodes, bytes algorithm,
                            hc_hierarchy_config *place) except -1:
    """What the set's data plane between nodes is, with the tags of `number`."""
    s = own.loop.settings
    memset(place, 0, sizeof(place[0]))
    place.set = number
    place.set_rank, place.set_size = own.rank, own.size
    place.members, place.node_of = members, nodes
    fill_knobs(hc__hierarchy_knobs, place, s)
    place.algorithm = algorithm
    return 0


cdef int new_planes(Set own, const int32_t *members, const int32_t *nodes, hc_node *node,
                    hc_set_parts *parts) except -1:
    """The set's data plane for host memory, in the node and between nodes, and what makes the one for device memory."""
    cdef hc_hierarchy_config place
    cdef bytes algorithm = own.loop.settings.algorithm.encode()
    describe_hierarchy(own, own.number, members, nodes, algorithm, &place)
    check(hc_hierarchy_new(&place, node, own.loop.net, &parts.host), "no data plane")
    parts.node = node
    parts.maker = new_maker(own.loop.devices, &place, algorithm, parts.host, own.loop.net)
    return 0


cdef void free_planes(const hc_set_parts *parts) noexcept:
    if parts.host is not NULL:
        hc__data_free(parts.host)
    if parts.maker is not NULL:
        parts.maker.free(parts.maker)
