# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of the ranks of an MPI communicator."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hpccoll import _core, compared, ending, errors
from hpccoll.compared import Compared
from hpccoll.rendezvous import codec
from hpccoll.rendezvous.roll_call import RollCall

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

__all__ = ["MpiRendezvous"]

T = TypeVar("T")

OTHER_MPI = (
    "Build mpi4py with the MPI that the process loads (MPICC=... pip install --no-binary mpi4py mpi4py), one with the "
    "interface of MPICH, of Open MPI or of MPI 5.0"
)
"""The remedy if hpccoll and mpi4py use different MPI libraries."""


class MpiRendezvous:
    """The ranks of an mpi4py communicator."""

    one_process = False

    def __init__(self, comm: Intracomm, timeout: float) -> None:
        """Duplicate the communicator, as soon as all its ranks are here.

        :param timeout: seconds for each wait for the others
        :raises StartError: ranks are missing; on all ranks that are here
        """
        _check_communicator(comm)
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        _check_library()
        self.comm, self.calls = comm, RollCall(comm, timeout)
        with ending.lacking_ranks_end_the_job(self):
            self.calls.meet()
        self.comm = self.duplicate()
        self.calls.comm = self.comm

    def duplicate(self) -> Intracomm:
        """Make another communicator of these ranks; all of them call this together.

        :raises StartError: ranks are missing; on all ranks that are here
        """
        made, request = self.comm.Idup()
        self._wait(request, made)
        return made

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        data = codec.encode(value)
        values: list[T] = codec.decode_all(self._collect(data, self.numbers([len(data)])[:, 0]))
        return values

    def compare(self, value: T) -> Compared[T]:
        """See Rendezvous: a reduction tells whether all values are equal; if not, one rank sends each value."""
        from mpi4py import MPI

        data = codec.encode(value)
        own = compared.digest(data)
        given, least = compared.extremes(own), np.empty(4, np.int64)
        self._wait(self.comm.Iallreduce(given, least, MPI.MIN), given, least)
        if compared.all_equal(least):
            return Compared([codec.decode(data)], self.size)
        rows = self.numbers([own[0], len(data)])
        first, of = compared.index(rows[:, 0])
        sizes = np.zeros(self.size, np.int64)
        sizes[first] = rows[first, 1]
        parts = self._collect(data if sizes[self.rank] else b"", sizes)
        return Compared(codec.decode_all(parts), self.size, of)

    def numbers(self, values: Sequence[int]) -> np.ndarray:
        """See Rendezvous."""
        mine = np.array(values, np.int64)
        rows = np.empty((self.size, len(mine)), np.int64)
        self._wait(self.comm.Iallgather(mine, rows), mine, rows)
        return rows

    def _collect(self, data: bytes, sizes: np.ndarray) -> list[bytes]:
        """Exchange bytes.

        :param sizes: how many bytes each rank has
        :returns: the bytes of each rank whose size is not 0, in order of the ranks
        """
        starts = np.cumsum(sizes) - sizes
        gathered = bytearray(int(sizes.sum()))
        target = (gathered, (sizes.tolist(), starts.tolist()), "B")
        self._wait(self.comm.Iallgatherv((data, "B"), target), data, target)
        having = np.flatnonzero(sizes)
        bounds = zip(starts[having].tolist(), (starts + sizes)[having].tolist(), strict=True)
        return [bytes(gathered[begin:end]) for begin, end in bounds]

    def _wait(self, request: Request, *memory: object) -> None:
        with ending.lacking_ranks_end_the_job(self):
            self.calls.wait(request, *memory)

    def machine(self) -> str:
        """See Rendezvous."""
        return _core.machine_name()

    def describe(self) -> str:
        """See Rendezvous."""
        return ""

    def give_up(self) -> None:
        """See Rendezvous: MPI_Finalize would wait for a dead rank."""
        from mpi4py import MPI

        if not MPI.Is_finalized():
            MPI.COMM_WORLD.Abort(1)

    def free(self) -> None:
        """Give the communicator back."""
        from mpi4py import MPI

        if not MPI.Is_finalized():
            self.comm.Free()


def _check_communicator(comm: Intracomm) -> None:
    from mpi4py import MPI

    if _forked_from_mpi:
        raise errors.ForkedError(
            "this process was forked from one that had started MPI, which does not live on in it: use the spawn "
            "start method"
        )
    if not MPI.Is_initialized() or MPI.Is_finalized():
        state = "finalized" if MPI.Is_initialized() else "not initialised"
        raise errors.StartError(f"MPI is {state}: a World of MPI ranks lives between MPI_Init and MPI_Finalize")
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        given = "MPI.COMM_NULL" if comm == MPI.COMM_NULL else repr(comm)
        raise errors.InvalidArgumentError(f"comm is {given}: a World is made of an intracommunicator of mpi4py")


_forked_from_mpi = False
"""The parent of this forked process had initialised MPI: calls of MPI in the child would hang."""


def _after_fork() -> None:
    global _forked_from_mpi
    mpi = sys.modules.get("mpi4py.MPI")
    _forked_from_mpi |= mpi is not None and mpi.Is_initialized()


os.register_at_fork(after_in_child=_after_fork)


def _check_library() -> None:
    """Check that hpccoll was built for the MPI ABI of mpi4py's library: else its communicators are invalid."""
    try:
        from hpccoll import _mpi

        misfits = _mpi.misfits()
    except (ImportError, RuntimeError) as error:
        raise errors.StartError(
            f"hpccoll cannot use mpi4py's MPI: {error}; `hpccoll info` says what is missing"
        ) from error
    if misfits:
        named = ", ".join(f"{name} is {theirs} and not {ours}" for name, (ours, theirs) in misfits.items())
        raise errors.StartError(
            f"mpi4py was built for another MPI than {_mpi.library_path()}, which has the interface of {_mpi.family()}: "
            f"{named}. {OTHER_MPI}"
        )
