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
        taken, loop.node_control, local_ranks, local_members.index(loop.rank), len(local_members), &hc_host_memory, &node)
    free(local_ranks)
    check(status, "the node's data plane could not be made")
    return node


cdef hc_data *new_data(Set own, const int32_t *members, const int32_t *nodes, hc_node *node) except NULL:
    """The set's data plane, in the node and between nodes, in host memory and on a device."""
    cdef hc_hierarchy_config config
    cdef hc_data *data = NULL
    s = own.loop.settings
    algorithm = s.algorithm.encode()
    memset(&config, 0, sizeof(config))
    config.set = own.number
    config.set_rank, config.set_size = own.rank, own.size
    config.members, config.node_of = members, nodes
    config.rails, config.chunk_bytes = s.rails, s.chunk_bytes
    config.algorithm = algorithm
    check(hc_hierarchy_new(&config, node, own.loop.net, &hc_host_memory, &data), "no data plane")
    return own.loop.with_device(&config, data)
