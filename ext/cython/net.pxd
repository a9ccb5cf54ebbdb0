# SPDX-License-Identifier: Apache-2.0
"""Nets in capsules "hpccoll.net", for every extension that makes or uses a net."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc


cdef extern from "transport/net/net.h" nogil:
    int HC_NET_VERSION
    ctypedef struct hc_net_ops:
        void (*free)(hc_net *) noexcept
    ctypedef struct hc_net:
        const hc_net_ops *ops
        int32_t rank, size
        uint64_t sent_messages, sent_bytes, received_bytes
        uint8_t needs_polling
        const char *text
    ctypedef struct hc_net_box:
        int version
        hc_net *net


cdef inline void destroy_box(object capsule) noexcept:
    cdef hc_net_box *box = <hc_net_box *>PyCapsule_GetPointer(capsule, "hpccoll.net")
    box.net.ops.free(box.net)
    free(box)


cdef inline object net_capsule(hc_net *net):
    """Make a capsule that owns the net; without memory for the capsule, free the net."""
    cdef hc_net_box *box = <hc_net_box *>malloc(sizeof(hc_net_box))
    if box == NULL:
        net.ops.free(net)
        raise MemoryError
    box.version = HC_NET_VERSION
    box.net = net
    return PyCapsule_New(box, "hpccoll.net", destroy_box)


cdef inline hc_net *net_of(object capsule) except NULL:
    """The net in a capsule of the same build."""
    return (<hc_net_box *>PyCapsule_GetPointer(capsule, "hpccoll.net")).net
