# SPDX-License-Identifier: Apache-2.0
"""Where ranks that want to become a World find each other, before there is one.

MPI gives a rendezvous (mpi.py), so does a key-value store (store.py); a process alone has a trivial one (alone.py), and
threads of one process have theirs in hpccoll.testing.
"""

from __future__ import annotations

from typing import Any, Protocol

from hpccoll.rendezvous.mpi import MpiRendezvous
from hpccoll.rendezvous.single_process import SingleProcess, WithoutMpi
from hpccoll.rendezvous.store import Store, StoreRendezvous

__all__ = ["MpiRendezvous", "Rendezvous", "SingleProcess", "Store", "StoreRendezvous", "WithoutMpi"]


class Rendezvous(Protocol):
    """Ranks that want to become a World."""

    rank: int
    size: int
    threads: bool
    """The ranks are threads of one process."""

    def allgather(self, value: Any) -> list[Any]:
        """Exchange small objects; all ranks call it together."""

    def machine(self) -> Any:
        """Equal on ranks that can share memory."""

    def net(self, machines: list[Any], /) -> Any:
        """A capsule "hpccoll.net". All ranks call it together, with what machine() gave on each of them."""

    def thread_level(self) -> str:
        """What the net allows: MULTIPLE, SERIALIZED, FUNNELED or SINGLE."""

    def library(self) -> str:
        """What the MPI library says of itself; "" without MPI."""

    def describe_net(self) -> str:
        """What moves bytes between nodes, for the line at the start."""

    def give_up(self) -> None:
        """The World is broken and the process ends: take the others along."""
