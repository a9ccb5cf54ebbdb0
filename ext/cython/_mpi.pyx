# SPDX-License-Identifier: Apache-2.0
"""The MPI part: a net over an mpi4py communicator, and which MPI library this is.

mpi4py is not needed to build this: a communicator is its handle, read at the address that mpi4py tells.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import os


cdef extern from "<dlfcn.h>" nogil:
    ctypedef struct Dl_info:
        const char *dli_fname
    int dladdr(const void *address, Dl_info *info)
    void *dlopen(const char *path, int flags)
    void *dlsym(void *handle, const char *name)
    int dlclose(void *handle)
    int RTLD_LAZY, RTLD_NOLOAD


cdef extern from "transport/net/mpi_net.h" nogil:
    ctypedef struct MPI_Comm:
        pass
    ctypedef struct hc_net_ops:
        void (*free)(hc_net *)
    ctypedef struct hc_net:
        const hc_net_ops *ops
        int32_t rank, size, max_tag
        uint64_t sent_messages, sent_bytes, received_bytes
        const char *text
    ctypedef struct hc_net_box:
        int version
        hc_net *net
    int HC_NET_VERSION
    int hc_mpi_net_new(MPI_Comm comm, int one_machine, hc_net **net)
    int MPI_MAX_LIBRARY_VERSION_STRING
    int MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE
    int MPI_Initialized(int *flag)
    int MPI_Query_thread(int *provided)
    int MPI_Get_library_version(char *text, int *length)


cdef void destroy_net(object capsule) noexcept:
    cdef hc_net_box *box = <hc_net_box *>PyCapsule_GetPointer(capsule, "hpccoll.net")
    box.net.ops.free(box.net)
    free(box)


cdef int is_initialized() except -1:
    cdef int flag = 0
    MPI_Initialized(&flag)
    if not flag:
        raise RuntimeError("MPI is not initialised: import mpi4py.MPI first")
    return 1


def net(comm, bint one_machine):
    """Make a net over a duplicate of `comm` (an mpi4py communicator); collective over it.

    `one_machine`: all ranks can share memory; the same on all of them.
    Returns a capsule "hpccoll.net" that owns the net. Raises RuntimeError with MPI's own words.
    """
    from mpi4py import MPI

    cdef MPI_Comm handle
    cdef hc_net *made = NULL
    cdef hc_net_box *box
    cdef int status
    is_initialized()
    if MPI._sizeof(comm) != sizeof(MPI_Comm):
        raise RuntimeError(
            f"mpi4py's communicators have {MPI._sizeof(comm)} bytes, those of {library_path()} have {sizeof(MPI_Comm)}"
        )
    memcpy(&handle, <const void *><uintptr_t>MPI._addressof(comm), sizeof(MPI_Comm))
    with nogil:
        status = hc_mpi_net_new(handle, one_machine, &made)
    if status < 0:
        raise RuntimeError(f"MPI_Comm_dup failed with status {status}")
    box = <hc_net_box *>malloc(sizeof(hc_net_box))
    if box == NULL:
        made.ops.free(made)
        raise MemoryError
    box.version = HC_NET_VERSION
    box.net = made
    return PyCapsule_New(box, "hpccoll.net", destroy_net)


def net_text(capsule):
    """What MPI said about the last failure of this net, or ""."""
    cdef hc_net_box *box = <hc_net_box *>PyCapsule_GetPointer(capsule, "hpccoll.net")
    return box.net.text.decode(errors="replace") if box.net.text != NULL else ""


def net_counters(capsule):
    """Messages and bytes sent, bytes received by this net so far."""
    cdef hc_net_box *box = <hc_net_box *>PyCapsule_GetPointer(capsule, "hpccoll.net")
    return box.net.sent_messages, box.net.sent_bytes, box.net.received_bytes


def library_version():
    """The first line of what the MPI library says of itself; works before MPI_Init."""
    cdef int length = 0
    cdef char *text = <char *>malloc(MPI_MAX_LIBRARY_VERSION_STRING + 1)
    if text == NULL:
        raise MemoryError
    MPI_Get_library_version(text, &length)
    try:
        return text[:length].decode(errors="replace").strip("\0 \n").split("\n")[0]
    finally:
        free(text)


def thread_level():
    """What MPI_Init gave: "SINGLE", "FUNNELED", "SERIALIZED" or "MULTIPLE"."""
    cdef int level = 0
    is_initialized()
    MPI_Query_thread(&level)
    for name, value in (
        ("SINGLE", MPI_THREAD_SINGLE),
        ("FUNNELED", MPI_THREAD_FUNNELED),
        ("SERIALIZED", MPI_THREAD_SERIALIZED),
        ("MULTIPLE", MPI_THREAD_MULTIPLE),
    ):
        if level == value:
            return name
    raise RuntimeError(f"MPI_Query_thread gave {level}, which is no level")


cdef path_of(const void *address):
    cdef Dl_info info
    if address == NULL or dladdr(address, &info) == 0:
        return None
    return os.path.realpath(os.fsdecode(info.dli_fname))


def library_path():
    """The file of the MPI library that this module was linked with.

    Not that of MPI_Init as it is called from here: where mpi4py has opened another library for all to see, that one's.
    """
    return library_path_of(__file__)


def library_path_of(extension):
    """The file of the MPI library that a loaded module, named by its file, was linked with or has opened; or None."""
    cdef bytes path = os.fsencode(extension)
    cdef void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD)
    if handle == NULL:
        return None
    try:
        return path_of(dlsym(handle, "MPI_Init"))
    finally:
        dlclose(handle)
