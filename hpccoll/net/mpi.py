# SPDX-License-Identifier: Apache-2.0
"""Nets over MPI messages, on a duplicate of the communicator of the rendezvous."""

import contextlib
import sys

from hpccoll import _core
from hpccoll.net.net_provider import Drivers
from hpccoll.rendezvous import MpiRendezvous, Rendezvous

__all__ = ["MpiNet", "make_progress", "thread_level", "why_missing"]

LEVELS = {
    "MULTIPLE": Drivers.ANY,
    "SERIALIZED": Drivers.CALLERS,
    "FUNNELED": Drivers.MAKER,
    "SINGLE": Drivers.MAKER,
}
"""The threads that may drive a net, for each thread level of MPI."""


def why_missing() -> str:
    """Explain why there is no MPI library here that hpccoll can use; "" if there is one."""
    try:
        from hpccoll import _mpi

        _mpi.family()
    except (ImportError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return ""


def thread_level() -> str:
    """The thread level that MPI_Init gave: MULTIPLE, SERIALIZED, FUNNELED or SINGLE."""
    from hpccoll import _mpi

    return _mpi.thread_level()


def make_progress() -> None:
    """Let ranks that wait in hpccoll make MPI progress, for a World whose net does not call MPI.

    MPI may make no progress while its rank does not call it: a large Send whose receiver waits in hpccoll would never
    end. An MPI library that hpccoll cannot use is not called.
    """
    program = sys.modules.get("mpi4py.MPI")
    if program is None or not program.Is_initialized() or program.Is_finalized():
        return
    with contextlib.suppress(ImportError, RuntimeError):
        from hpccoll import _mpi

        _core.drive_mpi(_mpi.progress())


class MpiNet:
    """See NetProvider."""

    name = "mpi"
    moves_device_memory = True

    def lacks(self, rendezvous: Rendezvous | None) -> str:
        """See NetProvider: MPI connects the ranks of a rendezvous over MPI."""
        if isinstance(rendezvous, MpiRendezvous):
            return ""
        if rendezvous is None:
            return why_missing()
        return "the ranks did not meet through MPI (start the job with hpccoll run, mpirun or srun)"

    def drivers(self) -> Drivers:
        """See NetProvider: as MPI's thread level allows."""
        return LEVELS[thread_level()]

    def describe(self) -> str:
        """See NetProvider."""
        return f"MPI ({self.library()}, thread level {thread_level()})"

    def library(self) -> str:
        """See NetProvider: the first line of MPI_Get_library_version."""
        from hpccoll import _mpi

        return _mpi.library_version()

    def make(self, rendezvous: Rendezvous, *, one_machine: bool) -> object:
        """See NetProvider."""
        from hpccoll import _mpi

        assert isinstance(rendezvous, MpiRendezvous)
        return _mpi.net(rendezvous.duplicate(), one_machine=one_machine)
