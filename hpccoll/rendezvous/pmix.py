# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of ranks without MPI that srun, or another launcher with a PMIx server, has started.

An exchange is PMIx_Put, PMIx_Commit, PMIx_Fence and a PMIx_Get per rank (PMIx Standard 4.1, chapters 5 and 6). The
launcher's servers accept no process but its ranks, so the values need no authentication. A fence waits for all ranks
of the job, for ever if one has died, so these exchanges are used only to make a World.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from hpccoll import errors
from hpccoll.rendezvous import codec
from hpccoll.rendezvous.machine import machine_name
from hpccoll.rendezvous.protocol import ByAllgather

__all__ = ["PmixRendezvous", "serves"]

T = TypeVar("T")
LIBRARY = "libpmix.so.2"
"""The library that the process has loaded already, or the system's."""
EVERYBODY = 2**32 - 2  # PMIX_RANK_WILDCARD: asks about the whole job
GLOBAL = 3  # PMIX_GLOBAL: ranks of all nodes may read it
BOOL, UINT32, BYTES = 1, 14, 27  # PMIX_BOOL, PMIX_UINT32, PMIX_BYTE_OBJECT


class _Process(ctypes.Structure):
    """pmix_proc_t."""

    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    """pmix_value_t: its type, and the part of its union that is read and written here; the rest is padding."""

    _fields_ = (
        ("type", ctypes.c_uint16),
        ("data", ctypes.c_void_p),  # of a byte object; of a number its bytes
        ("size", ctypes.c_size_t),
        ("padding", ctypes.c_char * 64),
    )


class _Info(ctypes.Structure):
    """pmix_info_t."""

    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


COLLECT = _Info(b"pmix.collect", 0, _Value(BOOL, 1))
"""PMIX_COLLECT_DATA: a fence distributes the values of all Puts. Without it a Get would cache the first value for
ever, also after later Puts."""


def serves(environment: Mapping[str, str]) -> bool:
    """Whether a PMIx server has started the process of this environment."""
    return "PMIX_RANK" in environment and "PMIX_NAMESPACE" in environment


class PmixRendezvous(ByAllgather):
    """See Rendezvous: all ranks of the job that this process is in."""

    one_process = False

    def __init__(self, watch: Callable[[], AbstractContextManager[object]], no_mpi: str) -> None:
        """Connect to the launcher.

        :param watch: makes a context for one exchange, which it ends if the exchange takes too long
        :param no_mpi: why the ranks do not use MPI
        :raises StartError: there is no libpmix, or the launcher's server does not answer it
        """
        self._watch, self._no_mpi = watch, no_mpi
        with watch():
            self._client = _of_process()
        self.rank, self.size = self._client.rank, self._client.size

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        with self._watch():
            values: list[T] = codec.decode_all(self._client.exchange(codec.encode(value)))
        return values

    def machine(self) -> str:
        """See Rendezvous."""
        return machine_name()

    def describe(self) -> str:
        """See Rendezvous."""
        return f"the ranks met through their launcher's PMIx, as mpi4py could not be loaded: {self._no_mpi}"

    def give_up(self) -> None:
        """See Rendezvous: the other ranks see that this process has ended, and do not wait for it."""

    def free(self) -> None:
        """See Rendezvous: the connection serves the next World as well."""


class _Client:
    """The process's connection to its PMIx server."""

    def __init__(self) -> None:
        try:
            self._pmix = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise errors.StartError(
                f"the launcher speaks PMIx, and there is neither MPI nor a PMIx client here ({error}): install mpi4py "
                "and an MPI, or libpmix (Debian: libpmix2), or start the job by `hpccoll run`"
            ) from None
        self._me, self._numbers = _Process(), itertools.count()
        self._check("PMIx_Init", self._pmix.PMIx_Init(ctypes.byref(self._me), None, ctypes.c_size_t(0)))
        atexit.register(self._finalize, os.getpid())
        self.rank = int(self._me.rank)
        job = self._get(EVERYBODY, b"pmix.job.size")
        if job.type != UINT32:
            raise errors.StartError(f"the launcher's PMIx says of the job's size a value of type {job.type}")
        self.size = int(job.data or 0) & 0xFFFFFFFF

    def exchange(self, data: bytes) -> list[bytes]:
        """Exchange the bytes of all ranks, an allgather; all ranks call this together, equally often."""
        key = f"hpccoll.{next(self._numbers)}".encode()
        kept = ctypes.create_string_buffer(data, len(data))
        value = _Value(BYTES, ctypes.cast(kept, ctypes.c_void_p), len(data))
        self._check("PMIx_Put", self._pmix.PMIx_Put(ctypes.c_uint8(GLOBAL), key, ctypes.byref(value)))
        self._check("PMIx_Commit", self._pmix.PMIx_Commit())
        all_of_the_job = (None, ctypes.c_size_t(0))
        status = self._pmix.PMIx_Fence(*all_of_the_job, ctypes.byref(COLLECT), ctypes.c_size_t(1))
        self._check("PMIx_Fence", status)
        return [data if rank == self.rank else self._bytes(rank, key) for rank in range(self.size)]

    def _bytes(self, rank: int, key: bytes) -> bytes:
        value = self._get(rank, key)
        if value.type != BYTES:
            raise errors.StartError(f"the World was not made: PMIx has a value of type {value.type} of rank {rank}")
        return ctypes.string_at(value.data, value.size)

    def _get(self, rank: int, key: bytes) -> _Value:
        """The value stays the library's: it is small, and there are some ten of each rank in a start."""
        who, found = _Process(self._me.namespace, rank), ctypes.POINTER(_Value)()
        none = ctypes.c_size_t(0)
        status = self._pmix.PMIx_Get(ctypes.byref(who), key, None, none, ctypes.byref(found))
        self._check(f"PMIx_Get of rank {rank}" if rank != EVERYBODY else "PMIx_Get of the job", status)
        return found.contents

    def _check(self, call: str, status: int) -> None:
        if status:
            self._pmix.PMIx_Error_string.restype = ctypes.c_char_p
            why = self._pmix.PMIx_Error_string(status).decode()
            raise errors.StartError(f"the World was not made: {call}: {why} ({LIBRARY})")

    def _finalize(self, owner: int) -> None:
        if os.getpid() == owner:  # and not a process that was forked from it
            self._pmix.PMIx_Finalize(None, ctypes.c_size_t(0))


@functools.cache
def _of_process() -> _Client:
    return _Client()
