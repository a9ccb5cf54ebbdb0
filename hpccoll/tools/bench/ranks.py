# SPDX-License-Identifier: Apache-2.0
"""The ranks of a measured job: their barriers and exchanges, independent of the measured library.

They use MPI if the job has it, so that measuring disturbs all libraries alike; a World without MPI (torchrun) uses
operations of hpccoll.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import hpccoll


class Ranks(Protocol):
    """The operations that measuring needs."""

    rank: int
    size: int

    def barrier(self) -> None:
        """Return when all ranks have called it."""

    def slowest(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the maximum over the ranks, element by element, on all of them."""

    def mean(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the mean over the ranks, element by element, on all of them."""

    def share(self, value: Any) -> list[Any]:
        """Give the values of all ranks, on all of them."""

    def send(self, value: float, peer: int) -> None:
        """Send a number to one rank."""

    def receive(self, peer: int) -> float:
        """Wait for a number from one rank."""


class MpiRanks:
    """Ranks of MPI_COMM_WORLD, on a separate communicator."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size

    def barrier(self) -> None:
        """See Ranks.barrier."""
        self._comm.Barrier()

    def slowest(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """See Ranks.slowest."""
        found = np.empty_like(seconds)
        self._comm.Allreduce(seconds, found, self._mpi.MAX)
        return found

    def mean(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """See Ranks.mean."""
        found = np.empty_like(seconds)
        self._comm.Allreduce(seconds, found, self._mpi.SUM)
        found /= self.size
        return found

    def share(self, value: Any) -> list[Any]:
        """See Ranks.share."""
        values: list[Any] = self._comm.allgather(value)
        return values

    def send(self, value: float, peer: int) -> None:
        """See Ranks.send."""
        self._comm.Send(np.array([value]), peer)

    def receive(self, peer: int) -> float:
        """See Ranks.receive."""
        found = np.empty(1)
        self._comm.Recv(found, peer)
        return float(found[0])


class WorldRanks:
    """Ranks of a World that has no MPI."""

    def __init__(self, world: hpccoll.World) -> None:
        self._world, self.rank, self.size = world, world.rank, world.size

    def barrier(self) -> None:
        """See Ranks.barrier."""
        self._world.barrier()

    def slowest(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """See Ranks.slowest."""
        found: NDArray[np.float64] = self._world.allreduce(seconds, hpccoll.MAX)
        return found

    def mean(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """See Ranks.mean."""
        found: NDArray[np.float64] = self._world.allreduce(seconds, hpccoll.AVERAGE)
        return found

    def share(self, value: Any) -> list[Any]:
        """See Ranks.share."""
        return self._world.allgather_object(value)

    def send(self, value: float, peer: int) -> None:
        """See Ranks.send."""
        self._world.send(np.array([value]), peer)

    def receive(self, peer: int) -> float:
        """See Ranks.receive."""
        found = np.empty(1)
        self._world.recv(found, peer)
        return float(found[0])


def of(world: hpccoll.World) -> Ranks:
    """Return the ranks of the default World."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return WorldRanks(world)
    return MpiRanks(MPI) if MPI.COMM_WORLD.size == world.size else WorldRanks(world)
