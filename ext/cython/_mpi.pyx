# SPDX-License-Identifier: Apache-2.0
"""The MPI part: a net over an mpi4py communicator, on whichever MPI library mpi4py uses.

Neither mpi4py nor an mpi.h is needed to build this: the handle of a communicator is read at mpi4py's address
of it, and the functions of MPI are looked up at their first use.
"""

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc

import importlib.util
import os

from net cimport hc_net, net_capsule, net_of


cdef extern from "<dlfcn.h>" nogil:
    ctypedef struct Dl_info:
        const char *dli_fname
    int dladdr(const void *address, Dl_info *info)


cdef extern from "transport/net/mpi_net.h" nogil:
    int HC_MPI_VERSION_ROOM
    ctypedef struct hc_mpi_fact:
        const char *name
        int64_t value
    ctypedef struct hc_mpi_family:
        const char *name
        const hc_mpi_fact *(*facts)() noexcept
        int (*version)(char *text) noexcept
        int (*thread_level)() noexcept
        void (*progress)() noexcept
        int (*net_new)(const void *comm, int one_machine, hc_net **net) noexcept nogil
    const hc_mpi_family *hc_mpi_load(const char *object, char *why)
    const void *hc_mpi_address()


cdef const hc_mpi_family *loaded = NULL


cdef const hc_mpi_family *mpi() except NULL:
    """Load and return the family of mpi4py's MPI library; this does not initialise MPI."""
    global loaded
    cdef char why[256]
    if loaded == NULL:
        try:
            spec = importlib.util.find_spec("mpi4py.MPI")  # mpi4py has one file per family, and chooses here
        except ImportError as error:
            raise RuntimeError(f"mpi4py cannot be imported: {error}") from None
        if spec is None or not spec.origin:
            raise RuntimeError("mpi4py has no MPI part for the MPI library here")
        loaded = hc_mpi_load(os.fsencode(spec.origin), why)
        if loaded == NULL:
            raise RuntimeError(f"the MPI library of {spec.origin} cannot be used: {why.decode(errors='replace')}")
    return loaded


def net(comm, bint one_machine):
    """Make a net over `comm` (an mpi4py communicator), which the net owns: the caller must not use or free it.

    `one_machine`: all ranks can share memory; the same on all of them.
    Returns a capsule "hpccoll.net" that owns the net. Raises RuntimeError with MPI's error text.
    """
    from mpi4py import MPI

    cdef const hc_mpi_family *family = mpi()
    cdef const void *handle = <const void *><uintptr_t>MPI._addressof(comm)
    cdef hc_net *made = NULL
    cdef int status
    thread_level()
    with nogil:
        status = family.net_new(handle, one_machine, &made)
    if status < 0:
        raise RuntimeError(f"a net over MPI could not be made: status {status}")
    return net_capsule(made)


def net_text(capsule):
    """MPI's text of the last failure of this net, or ""."""
    cdef hc_net *of = net_of(capsule)
    return of.text.decode(errors="replace") if of.text != NULL else ""


def net_counters(capsule):
    """Messages and bytes sent, bytes received by this net so far."""
    cdef hc_net *of = net_of(capsule)
    return of.sent_messages, of.sent_bytes, of.received_bytes


def library_version():
    """The first line of MPI_Get_library_version(); works before MPI_Init."""
    cdef const hc_mpi_family *family = mpi()
    cdef char *text = <char *>malloc(HC_MPI_VERSION_ROOM)
    if text == NULL:
        raise MemoryError
    try:
        if family.version(text) < 0:
            raise RuntimeError("MPI_Get_library_version failed")
        return text.decode(errors="replace").strip("\0 \n").split("\n")[0]
    finally:
        free(text)


def thread_level():
    """The thread level of MPI: "SINGLE", "FUNNELED", "SERIALIZED" or "MULTIPLE"."""
    cdef int level = mpi().thread_level()
    if level < 0:
        raise RuntimeError("MPI is not initialised: import mpi4py.MPI first")
    return ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")[level]


def progress():
    """A capsule "hpccoll.progress" with the function by which a rank that waits makes MPI progress."""
    return PyCapsule_New(<void *>mpi().progress, "hpccoll.progress", NULL)


def family():
    """The interface of the MPI library: "MPICH" (also Intel MPI and Cray MPICH), "Open MPI" or the standard's."""
    return mpi().name.decode()


def misfits():
    """The facts in which mpi4py and this module differ: {name: (ours, mpi4py's)}; empty if they agree."""
    from mpi4py import MPI

    cdef const hc_mpi_fact *fact = mpi().facts()
    found = {}
    while fact.name != NULL:
        what, _, name = fact.name.decode().rpartition(" ")
        theirs = getattr(MPI, name, None)
        if what == "sizeof":
            theirs = MPI._sizeof(theirs)
        elif what == "handle":
            theirs = MPI._handleof(theirs)
        if theirs is not None and theirs != fact.value:
            found[name] = fact.value, theirs
        fact += 1
    return found


def library_path():
    """The file of the MPI library."""
    mpi()
    cdef Dl_info info
    if dladdr(hc_mpi_address(), &info) == 0:
        return None
    return os.path.realpath(os.fsdecode(info.dli_fname))
