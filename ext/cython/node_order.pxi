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
    hc_address hc_address_of(const hc_address_facts *)
    const char *hc_address_called(int)
    int32_t hc_nodes_order(const char *const *, int32_t, hc_node_place *)
    ctypedef struct hc_node_reports:
        const char *const *hosts
        const char *const *addresses
        int32_t n
        int32_t kind
        const char *differing
        const char *file
    ctypedef struct hc_node_order:
        int32_t kind
        hc_node_place *places
        char said[96]
        char why[1024]
    int hc_nodes_choose(const hc_node_reports *, hc_node_order *)

# How each kind of address is called; the first kind is the host's name.
ADDRESSES = tuple([hc_address_called(i).decode() for i in range(HC_ADDRESS_KINDS)])


def node_address(str host, str file="", str slurm="", str slurm_pattern="", str xname=""):
    """Say where a node stands in the network, by the best that is known.

    :param file: lines of a host and its levels from the top down
    :param slurm: SLURM_TOPOLOGY_ADDR; slurm_pattern: SLURM_TOPOLOGY_ADDR_PATTERN
    :param xname: of a Cray; None: it is read from a file
    :returns: the kind of the address, an index of ADDRESSES, and the levels: "core/leaf3/n12"
    """
    cdef list kept = [os.fsencode(text or "") for text in (host, file, slurm, slurm_pattern, xname)]
    cdef hc_address_facts facts = hc_address_facts(kept[0], kept[1], kept[2], kept[3], kept[4])
    cdef hc_address found
    if xname is None:
        facts.xname = NULL
    with nogil:
        found = hc_address_of(&facts)
    return found.kind, os.fsdecode(found.text)


cdef const char **texts_of(list kept) except NULL:
    """Return the addresses of bytes, which the caller keeps; it frees the result."""
    cdef const char **texts = <const char **>malloc((len(kept) + 1) * sizeof(char *))
    if texts is NULL:
        raise errors.OutOfMemoryError("no memory for the order of the nodes")
    for i, text in enumerate(kept):
        texts[i] = text
    return texts


def order_nodes(list hosts, list addresses, int kind, str differing, str file, Loop loop=None):
    """Choose what orders nodes, their addresses or their hosts' names, and order them.

    :param hosts: of the nodes
    :param addresses: of the nodes, of one kind
    :param differing: if ranks have addresses of several kinds: which, in words
    :param file: HPCCOLL_NODE_FILE
    :param loop: orders its nodes, before it has process sets
    :returns: the texts that order the nodes, or None if all are equal; in words, what orders them, and why host names
        do although some rank knows more
    """
    cdef list kept = [[os.fsencode(text) for text in texts] for texts in (hosts, addresses, (differing, file))]
    cdef hc_node_reports reports = hc_node_reports(NULL, NULL, len(hosts), kind, kept[2][0], kept[2][1])
    cdef hc_node_order found
    cdef const char **of_hosts = texts_of(kept[0])
    cdef const char **of_addresses = texts_of(kept[1])
    reports.hosts, reports.addresses = of_hosts, of_addresses
    cdef int status = hc_nodes_choose(&reports, &found)
    free(of_hosts)
    free(of_addresses)
    if status < 0:
        raise errors.OutOfMemoryError("no memory for the order of the nodes")
    if loop is not None:
        loop.job.places = found.places
    else:
        free(found.places)
    texts = hosts if found.kind == 0 else addresses
    return texts if found.said[0] else None, os.fsdecode(found.said), os.fsdecode(found.why)


def nodes_order(list addresses):
    """Order nodes by their addresses.

    :returns: the position of each node along the network, and its group, both from 0
    """
    cdef list kept = [os.fsencode(text) for text in addresses]
    cdef const char **texts = texts_of(kept)
    cdef hc_node_place *places = <hc_node_place *>malloc((len(kept) + 1) * sizeof(hc_node_place))
    cdef int32_t groups = hc_nodes_order(texts, len(kept), places) if places is not NULL else -1
    free(texts)
    if groups < 0:
        free(places)
        raise errors.OutOfMemoryError("no memory for the order of the nodes")
    found = [places[i].position for i in range(len(addresses))], [places[i].group for i in range(len(addresses))]
    free(places)
    return found
