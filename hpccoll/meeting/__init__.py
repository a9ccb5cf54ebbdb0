# SPDX-License-Identifier: Apache-2.0
"""Where ranks that want to become a World find each other, before there is one.

MPI gives a meeting (mpi.py), so does a key-value store (store.py); threads of one process have theirs in
hpccoll.testing, and a process alone has a trivial one.
"""

from __future__ import annotations

from typing import Any, Protocol

from hpccoll.meeting.mpi import MpiMeeting
from hpccoll.meeting.store import Store, StoreMeeting

__all__ = ["Alone", "Meeting", "MpiMeeting", "Store", "StoreMeeting"]


class Meeting(Protocol):
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


class Alone:
    """The meeting of a process without MPI."""

    rank, size, threads = 0, 1, False

    def allgather(self, value: Any) -> list[Any]:
        """See Meeting."""
        return [value]

    def machine(self) -> Any:
        """See Meeting."""
        return 0

    def net(self, _machines: list[Any], /) -> Any:
        """See Meeting."""
        raise AssertionError("a World of one rank has no net")

    def thread_level(self) -> str:
        """See Meeting."""
        return "MULTIPLE"

    def library(self) -> str:
        """See Meeting."""
        return ""

    def describe_net(self) -> str:
        """See Meeting."""
        return "none"

    def give_up(self) -> None:
        """See Meeting."""
