# SPDX-License-Identifier: Apache-2.0
# node_order.pxi - where nodes stand in the network, and the order of a loop's nodes.

cdef extern from "world/node_order.h" nogil:
    enum: HC_ADDRESS_KINDS
    ctypedef struct hc_address:
        int32_t kind
        char text[128]
    ctypedef struct hc_address_facts:
        const char *host
        const char *file
        const char *slurm
        const char *slurm_pattern
        const char *xname
    const char *HC_XNAME_FILE
    hc_address hc_address_of(const hc_address_facts *)
    const char *hc_address_called(int)
    const char *hc_address_group(int, int)
    int32_t hc_nodes_order(const char *const *, int32_t, hc_node_place *)

XNAME_FILE = HC_XNAME_FILE.decode()
# How each kind of address is called, and a group of nodes, and several groups; the first kind is the host's name.
ADDRESSES = tuple([
    (hc_address_called(i).decode(), hc_address_group(i, 0).decode(), hc_address_group(i, 1).decode())
    for i in range(HC_ADDRESS_KINDS)
])


def node_address(str host, str file="", str slurm="", str slurm_pattern="", str xname=""):
    """Say where a node stands in the network, by the best that is known.

    :param file: lines of a host and its levels from the top down
    :param slurm: SLURM_TOPOLOGY_ADDR; slurm_pattern: SLURM_TOPOLOGY_ADDR_PATTERN
    :param xname: of a Cray
    :returns: the kind of the address, an index of ADDRESSES, and the levels: "core/leaf3/n12"
    """
    cdef list kept = [os.fsencode(text) for text in (host, file, slurm, slurm_pattern, xname)]
    cdef hc_address_facts facts = hc_address_facts(kept[0], kept[1], kept[2], kept[3], kept[4])
    cdef hc_address found
    with nogil:
        found = hc_address_of(&facts)
    return found.kind, os.fsdecode(found.text)


cdef hc_node_place *places_of(list addresses, int32_t *groups) except NULL:
    cdef int32_t n = len(addresses), i
    cdef list kept = [os.fsencode(text) for text in addresses]
    cdef const char **texts = <const char **>malloc((n + 1) * sizeof(char *))
    cdef hc_node_place *places = <hc_node_place *>malloc((n + 1) * sizeof(hc_node_place))
    groups[0] = -1
    if texts is not NULL and places is not NULL:
        for i in range(n):
            texts[i] = kept[i]
        groups[0] = hc_nodes_order(texts, n, places)
    free(texts)
    if groups[0] < 0:
        free(places)
        raise errors.OutOfMemoryError("no memory for the order of the nodes")
    return places


def nodes_order(list addresses):
    """Order nodes by their addresses.

    :returns: the position of each node along the network, and its group, both from 0
    """
    cdef int32_t groups
    cdef hc_node_place *places = places_of(addresses, &groups)
    found = [places[i].position for i in range(len(addresses))], [places[i].group for i in range(len(addresses))]
    free(places)
    return found


def order_nodes(Loop loop, list addresses):
    """Order the nodes of a loop by their addresses, before it has process sets.

    :returns: the number of groups of nodes
    """
    cdef int32_t groups
    loop.job.places = places_of(addresses, &groups)
    return groups
