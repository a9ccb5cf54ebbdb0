# SPDX-License-Identifier: Apache-2.0
"""The UCX part: nets over a UCX library that is opened at run time.

The build needs no header of UCX.
"""

from libc.stdint cimport int32_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport strncpy

import ipaddress
import os

from net cimport hc_net, net_capsule, net_of


cdef extern from "transport/net/ucx_net.h" nogil:
    int HC_UCX_WHY
    int hc_ucx_open(const char *file, char *why)
    const char *hc_ucx_version()
    const char *hc_ucx_file()
    int hc_ucx_net_new(int32_t rank, int32_t size, const char *const *settings, hc_net **net, char *why)
    const void *hc_ucx_net_address(hc_net *net, size_t *bytes)
    int hc_ucx_net_connect(hc_net *net, uint16_t generation, int has_rdma, const void *const *addresses,
                           const size_t *bytes)
    char *hc_ucx_net_devices(hc_net *net, int *has_rdma)


cdef extern from "transport/net/ucx_interfaces.h" nogil:
    ctypedef struct hc_interface:
        char name[16]
        uint32_t address, mask, machine, is_up
    int hc_interfaces_choose(const hc_interface *every, int n, uint32_t mine, const char *wanted, char *names,
                             size_t space)
    void hc_interfaces_infiniband(char *names, size_t space)


def open_library(file):
    """Open a UCX library (its file; None: only a library that the process has loaded); later calls keep the first.

    Raises RuntimeError with the reason.
    """
    cdef char why[256]
    cdef int status
    name = None if file is None else os.fsencode(file)
    cdef const char *path = NULL
    if name is not None:
        path = name
    status = hc_ucx_open(path, why)
    if status < 0:
        raise RuntimeError(why.decode(errors="replace"))


def library_version():
    """The version of the open library; "" before open_library()."""
    return hc_ucx_version().decode(errors="replace")


def library_path():
    """The file of the open library; "" before open_library()."""
    return os.path.realpath(os.fsdecode(hc_ucx_file())) if hc_ucx_file()[0] else ""


def net(int32_t rank, int32_t size, settings):
    """Begin a net, which is usable after meet() on all ranks.

    `settings`: values by UCX's names without UCX_, only for this net.
    Returns a capsule "hpccoll.net" that owns it. Raises RuntimeError with UCX's error text.
    """
    cdef char why[256]
    cdef int status
    cdef hc_net *made = NULL
    words = [word.encode() for pair in settings.items() for word in pair]
    cdef const char **texts = <const char **>calloc(len(words) + 1, sizeof(char *))
    if texts == NULL:
        raise MemoryError
    for i, word in enumerate(words):
        texts[i] = word
    with nogil:
        status = hc_ucx_net_new(rank, size, texts, &made, why)
    free(texts)
    if status < 0:
        raise RuntimeError(f"a net over UCX could not be made: {why.decode(errors='replace')}")
    return net_capsule(made)


def address(capsule):
    """The address of a net before meet(), with which the other ranks connect to it."""
    cdef size_t nbytes = 0
    cdef const void *data = hc_ucx_net_address(net_of(capsule), &nbytes)
    return (<const char *>data)[:nbytes]


def meet(capsule, uint16_t generation, bint has_rdma, addresses):
    """Set the addresses of all ranks, a number that is equal on all ranks, and whether all have an RDMA transport."""
    cdef hc_net *of = net_of(capsule)
    cdef int status
    kept = [bytes(one) for one in addresses]
    if len(kept) != of.size:
        raise RuntimeError(f"{len(kept)} addresses for {of.size} ranks")
    cdef const void **starts = <const void **>calloc(len(kept), sizeof(void *))
    cdef size_t *lengths = <size_t *>calloc(len(kept), sizeof(size_t))
    if starts == NULL or lengths == NULL:
        free(starts)
        free(lengths)
        raise MemoryError
    for i, one in enumerate(kept):
        starts[i] = <const char *>one
        lengths[i] = len(one)
    status = hc_ucx_net_connect(of, generation, has_rdma, starts, lengths)
    free(starts)
    free(lengths)
    if status < 0:
        raise RuntimeError(f"a net over UCX could not be made: status {status}")


def devices(capsule):
    """The transports of a net between hosts with their devices ("tcp/eth0"), and whether one of them is not TCP."""
    cdef int has_rdma = 0
    cdef char *text = hc_ucx_net_devices(net_of(capsule), &has_rdma)
    if text == NULL:
        raise MemoryError
    try:
        return text.decode(errors="replace"), bool(has_rdma)
    finally:
        free(text)


def choose_interfaces(machines, uint32_t mine, str wanted):
    """Choose the interfaces of a machine that lead to the others.

    `machines`: the interfaces of each machine, with name, address, prefix and up, the same list on all of them.
    `mine`: the number of this machine in the list.
    `wanted`: names or networks (`eth0,10.1.0.0/16`); empty: networks that all machines share, else the routes to the
    other machines; all where there is one machine.
    Returns "eth0,eth1"; "" if there is none.
    """
    cdef char names[512]
    cdef int n = 0
    cdef hc_interface *every = <hc_interface *>calloc(sum(map(len, machines)) + 1, sizeof(hc_interface))
    if every == NULL:
        raise MemoryError
    try:
        for number, found in enumerate(machines):
            for one in found:
                strncpy(every[n].name, one["name"].encode(), sizeof(every[n].name) - 1)
                every[n].address = int(ipaddress.IPv4Address(one["address"]))
                every[n].mask = int(ipaddress.IPv4Network(f"0.0.0.0/{one['prefix']}").netmask)
                every[n].machine, every[n].is_up = number, one["up"]
                n += 1
        if hc_interfaces_choose(every, n, mine, wanted.encode(), names, sizeof(names)) < 0:
            raise MemoryError
    finally:
        free(every)
    return names.decode()


def infiniband():
    """The ports of InfiniBand and RoCE adapters that are up, as UCX names them: "mlx5_0:1,mlx5_1:1"."""
    cdef char names[512]
    hc_interfaces_infiniband(names, sizeof(names))
    return names.decode()
