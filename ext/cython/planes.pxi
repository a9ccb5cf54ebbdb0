# SPDX-License-Identifier: Apache-2.0
# planes.pxi - what moves the batches of one process set: its node, and the data plane over it.

cdef hc_node *new_node(Loop loop, tuple members, Segment segment) except NULL:
    """The node's part of the set's data plane. It owns the mapping from here on."""
    cdef hc_node *node = NULL
    mine = loop.node_of[loop.rank]
    here = [r for r in range(loop.size) if loop.node_of[r] == mine]
    local_members = [m for m in members if loop.node_of[m] == mine]
    cdef int32_t *local_ranks = copy_ranks([here.index(m) for m in local_members])
    cdef hc_segment taken = segment.c
    segment.c.base = NULL
    segment.c.fd = -1
    cdef int status = hc_shm_node_new(
        taken, loop.node_control, local_ranks, local_members.index(loop.rank), len(local_members), &node)
    free(local_ranks)
    check(status, "the node's data plane could not be made")
    return node


cdef int place_set(Set own, const int32_t *members, const int32_t *nodes, hc_hierarchy_config *place) except -1:
    """Where the set's ranks are, and the knobs of its data planes; `place` borrows the arrays."""
    s = own.loop.settings
    memset(place, 0, sizeof(place[0]))
    place.set = own.number
    place.set_rank, place.set_size = own.rank, own.size
    place.members, place.node_of = members, nodes
    place.rails, place.chunk_bytes = s.rails, s.chunk_bytes
    return 0


cdef hc_data *new_data(Set own, const int32_t *members, const int32_t *nodes, hc_node *node) except NULL:
    """The set's data plane for host memory, in the node and between nodes."""
    cdef hc_hierarchy_config place
    cdef hc_data *data = NULL
    algorithm = own.loop.settings.algorithm.encode()
    place_set(own, members, nodes, &place)
    place.algorithm = algorithm
    check(hc_hierarchy_new(&place, node, own.loop.net, &data), "no data plane")
    return data


# ---- device memory -------------------------------------------------------------------------------------

cdef struct PlaneMaker:  # a set's
    hc_plane_maker base
    void *devices        # a Devices, to which this is a reference
    hc_hierarchy_config place
    hc_data *host
    hc_net *net
    int32_t *ranks       # members and nodes, to which `place` points


cdef int make_plane(hc_plane_maker *base, int memory, hc_data **data, char *text) noexcept with gil:
    """The loop's driver asks, on whatever thread."""
    cdef PlaneMaker *maker = <PlaneMaker *>base
    try:
        algorithm = (<Devices>maker.devices).settings.algorithm.encode()
        maker.place.algorithm = algorithm
        data[0] = (<Devices>maker.devices).new_plane(&maker.place, maker.host, maker.net)
        return HC_OK
    except BaseException as error:
        words = (str(error) or type(error).__name__).encode()[:HC_PLANE_TEXT - 1]
        memcpy(text, <const char *>words, len(words) + 1)
        return HC_TRANSPORT


cdef void free_maker(hc_plane_maker *base) noexcept with gil:
    cdef PlaneMaker *maker = <PlaneMaker *>base
    (<Devices>maker.devices).planes[maker.place.set] = NULL
    Py_DECREF(<Devices>maker.devices)
    free(maker.ranks)
    free(maker)


cdef hc_plane_maker *new_maker(Set own, const int32_t *members, const int32_t *nodes, hc_data *host) except NULL:
    """What makes the set's data plane for device memory, when its first batch or message there comes."""
    cdef PlaneMaker *maker = <PlaneMaker *>calloc(1, sizeof(PlaneMaker))
    cdef int32_t *ranks = <int32_t *>malloc(2 * own.size * sizeof(int32_t))
    if maker is NULL or ranks is NULL:
        free(maker)
        free(ranks)
        raise MemoryError
    memcpy(ranks, members, own.size * sizeof(int32_t))
    memcpy(ranks + own.size, nodes, own.size * sizeof(int32_t))
    place_set(own, ranks, ranks + own.size, &maker.place)
    maker.base.make, maker.base.free = make_plane, free_maker
    maker.host, maker.net, maker.ranks = host, own.loop.net, ranks
    maker.devices = <void *>own.loop.devices
    Py_INCREF(own.loop.devices)
    return &maker.base
