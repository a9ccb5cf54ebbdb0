# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of the ranks of an MPI communicator."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from hpccoll import errors
from hpccoll.rendezvous import codec
from hpccoll.text import some_ranks

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["MpiRendezvous"]

T = TypeVar("T")

OTHER_MPI = (
    "Build mpi4py with the MPI that the process loads (MPICC=... pip install --no-binary mpi4py mpi4py), one with the "
    "interface of MPICH, of Open MPI or of MPI 5.0"
)
"""What to do where hpccoll and mpi4py do not agree about the MPI library."""

HELLO_TAG = 0x4843  # below the smallest tag limit that the MPI standard allows
REPORT_EVERY = 10.0


class MpiRendezvous:
    """The ranks of an mpi4py communicator."""

    one_process = False

    def __init__(self, comm: Intracomm, timeout: float) -> None:
        """Say hello to all ranks within `timeout` seconds, then duplicate the communicator."""
        _check_communicator(comm)
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        _check_library()
        if self.size > 1:
            _Hello(comm, timeout).exchange()
        self.comm = comm.Dup()

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        return [codec.decode(data) for data in self.comm.allgather(codec.encode(value))]

    def machine(self) -> int:
        """See Rendezvous: the lowest rank among those that MPI says share memory."""
        from mpi4py import MPI

        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        lowest: int = near.allreduce(self.rank, MPI.MIN)
        near.Free()
        return lowest

    def describe(self) -> str:
        """See Rendezvous."""
        return ""

    def give_up(self) -> None:
        """See Rendezvous: MPI_Finalize would wait for a rank that is gone."""
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
"""MPI was started by a process that this one was forked from: it knows nothing of a child, and would hang."""


def _after_fork() -> None:
    global _forked_from_mpi
    mpi = sys.modules.get("mpi4py.MPI")
    _forked_from_mpi |= mpi is not None and mpi.Is_initialized()


os.register_at_fork(after_in_child=_after_fork)


def _check_library() -> None:
    """The MPI part must know the sizes and constants of mpi4py's library, or a communicator is garbage to it."""
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


class _Hello:
    """A start that is bounded in time: rank 0 hears from everybody, or says who is missing.

    Collectives of MPI would wait for ever, and do not know for whom.
    """

    def __init__(self, comm: Intracomm, timeout: float) -> None:
        self.comm, self.timeout = comm, timeout
        self.began = time.monotonic()

    def exchange(self) -> None:
        if self.comm.Get_rank() == 0:
            self.gather()
        else:
            self.report()

    def gather(self) -> None:
        missing = set(range(1, self.comm.Get_size()))
        requests = {r: self.comm.irecv(source=r, tag=HELLO_TAG) for r in missing}
        reported = self.began
        while True:
            late = self.late()  # asked first: what came while this process stood still has come
            missing -= {r for r in missing if requests[r].test()[0]}
            if late or not missing:
                break
            if time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                print(f"hpccoll: start: waiting for {some_ranks(missing)}", file=sys.stderr, flush=True)
            time.sleep(0.0005)
        verdict = (
            f"no word from {some_ranks(missing)} within {self.timeout:g} s (HPCCOLL_START_TIMEOUT)" if missing else ""
        )
        for r in set(requests) - missing:
            self.comm.send(verdict, dest=r, tag=HELLO_TAG)
        for r in missing:
            requests[r].cancel()
        if verdict:
            raise errors.StartError(f"the World was not made: {verdict}")

    def report(self) -> None:
        sent = self.comm.isend(None, dest=0, tag=HELLO_TAG)
        answer = self.comm.irecv(source=0, tag=HELLO_TAG)
        self.timeout += 5  # rank 0 knows more: let it speak first
        late = False
        while not late:
            late = self.late()
            done, verdict = answer.test()
            if done:
                sent.wait()
                if verdict:
                    raise errors.StartError(f"the World was not made: {verdict}")
                return
            time.sleep(0.0005)
        raise errors.StartError(f"the World was not made: no word from rank 0 within {self.timeout:g} s")

    def late(self) -> bool:
        return time.monotonic() - self.began > self.timeout
