# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of ranks that are threads of one process."""

import threading
from typing import Any, TypeVar

from hpccoll.rendezvous import codec
from hpccoll.rendezvous.protocol import ByAllgather

__all__ = ["ThreadGroup", "ThreadRendezvous"]

T = TypeVar("T")


class ThreadGroup:
    """The shared state of the threads of one rendezvous."""

    def __init__(self, size: int) -> None:
        """Prepare for `size` threads, which wait for each other for a minute at most."""
        self.barrier = threading.Barrier(size, timeout=60.0)
        self.values: list[Any] = [None] * size


class ThreadRendezvous(ByAllgather):
    """See Rendezvous: the thread that is rank `rank` of the group."""

    one_process = True

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self.group, self.rank, self.size = group, rank, len(group.values)

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous."""
        return [codec.decode(data) for data in self.share(codec.encode(value))]

    def share(self, value: T) -> list[T]:
        """Exchange any value between the threads, as it is; all of them call this together."""
        self.group.barrier.wait()
        self.group.values[self.rank] = value
        self.group.barrier.wait()
        return list(self.group.values)
