# SPDX-License-Identifier: Apache-2.0
"""The UCX part: nets over a UCX library that is opened at run time.

The build needs no header of UCX.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t
from libc.stdlib cimport calloc, free

import os

from net cimport hc_net, net_capsule, net_of


cdef extern from "transport/net/ucx_net.h" nogil:
    int HC_UCX_WHY
    int hc_ucx_open(const char *file, char *why)
    const char *hc_ucx_version()
    const char *hc_ucx_file()
    int hc_ucx_net_new(int32_t rank, int32_t size, const char *const *settings, hc_net **net, char *why)
    const void *hc_ucx_net_address(hc_net *net, size_t *bytes)
    int hc_ucx_net_connect(hc_net *net, uint16_t generation, int64_t message_bytes, const void *const *addresses,
                           const size_t *bytes)
    char *hc_ucx_net_info(hc_net *net)


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


def meet(capsule, uint16_t generation, int64_t message_bytes, addresses):
    """Set the addresses of all ranks, a number that is equal on all ranks, and the best length of messages."""
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
    status = hc_ucx_net_connect(of, generation, message_bytes, starts, lengths)
    free(starts)
    free(lengths)
    if status < 0:
        raise RuntimeError(f"a net over UCX could not be made: status {status}")


def info(capsule):
    """UCX's description of the transports that a net may use."""
    cdef char *text = hc_ucx_net_info(net_of(capsule))
    if text == NULL:
        raise MemoryError
    try:
        return text.decode(errors="replace")
    finally:
        free(text)
