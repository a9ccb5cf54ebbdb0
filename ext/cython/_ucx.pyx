# SPDX-License-Identifier: Apache-2.0
"""The UCX part: nets over a UCX library that is opened at run time.

The build needs no header of UCX.
"""

from libc.stdint cimport int32_t, uint16_t
from libc.string cimport memcpy

import os

from hpccoll import errors

cimport cython

from exchange cimport *
from net cimport hc_net, net_capsule

include "exchange.pxi"


cdef extern from "transport/net/ucx_net.h" nogil:
    int hc_ucx_open(const char *file, char *why)
    const char *hc_ucx_version()
    const char *hc_ucx_file()


cdef extern from "rendezvous/ucx_start.h" nogil:
    ctypedef struct hc_ucx_terms:
        int32_t rank
        const char *interface
        int by_user
        uint16_t generation
    int hc_ucx_net_make(const hc_exchange *, const hc_ucx_terms *, hc_net **, char *why)
    void hc_ucx_net_describe(hc_net *, int by_user, char *text, size_t space)


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


def net(gather, int32_t rank, int32_t size, str interface, bint by_user, uint16_t generation):
    """Make the net of this rank, with a UCX context and worker of its own; all ranks call this together.

    :param gather: an allgather over them, as hpccoll.rendezvous.gather_bytes() makes it
    :param interface: HPCCOLL_INTERFACE: names or networks of interfaces, or ""
    :param by_user: UCX_NET_DEVICES is set, which UCX reads itself: no interface is chosen
    :param generation: a number that no earlier net had; rank 0's counts
    :returns: a capsule "hpccoll.net" that owns it, and what it is, in words
    :raises StartError: a rank could not; the same on all ranks
    """
    cdef Exchange exchange = exchange_of(gather, size)
    cdef hc_exchange c = exchange.c()
    cdef bytes named = interface.encode()
    cdef hc_ucx_terms terms = hc_ucx_terms(rank, named, by_user, generation)
    cdef hc_net *made = NULL
    cdef char why[HC_EXCHANGE_WHY]
    cdef char text[512]
    cdef int status
    with nogil:
        status = hc_ucx_net_make(&c, &terms, &made, why)
    exchange.check(status, why)
    capsule = net_capsule(made)
    hc_ucx_net_describe(made, by_user, text, sizeof(text))
    return capsule, text.decode(errors="replace")
