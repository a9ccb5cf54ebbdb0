# SPDX-License-Identifier: Apache-2.0
"""Worlds whose ranks are threads of this process: for tests of programs that use hpccoll, and of hpccoll.

The engine, the loop and the data plane are the real ones; memory and network are this process's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hpccoll import _core, bootstrap, config
from hpccoll.world import World

__all__ = ["run", "threads"]


class _Room:
    """Where the threads meet."""

    def __init__(self, size: int, timeout: float) -> None:
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=timeout)
        self.shared: dict[Any, Any] = {}
        self.lock = threading.Lock()
        self.nets = _core.local_nets(size)


class _ThreadMeeting:
    """See bootstrap.Meeting."""

    threads = True

    def __init__(self, room: _Room, rank: int, level: str) -> None:
        self.room, self.rank, self.size, self.level = room, rank, len(room.values), level

    def allgather(self, value: Any) -> list[Any]:
        self.room.barrier.wait()
        self.room.values[self.rank] = value
        self.room.barrier.wait()
        return list(self.room.values)

    def machine(self) -> Any:
        return 0

    def net(self) -> Any:
        return self.room.nets[self.rank]

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """The same object for all threads that ask for `key`."""
        with self.room.lock:
            if key not in self.room.shared:
                self.room.shared[key] = make()
            return self.room.shared[key]

    def thread_level(self) -> str:
        return self.level

    def describe_net(self) -> str:
        return "threads"

    def give_up(self) -> None:
        pass


def threads(n: int, *, level: str = "MULTIPLE", **knobs: Any) -> list[World]:
    """Make a World of `n` ranks in this process; element r is rank r's view of it, to be used by one thread.

    :param level: pretend that the net allows this thread level
    :param knobs: fields of Config, such as ``nodes="2+1"``
    """
    settings = config.read(**{"verbose": 0, "start_timeout": 60.0, **knobs})
    room = _Room(n, settings.start_timeout)

    def make(rank: int) -> World:
        try:
            return World.from_parts(*bootstrap.make(_ThreadMeeting(room, rank, level), settings))
        except BaseException:
            room.barrier.abort()
            raise

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(make, range(n)))


def run(worlds: list[World], program: Callable[[World], Any]) -> list[Any]:
    """Run `program` once a rank, each in its own thread; the results in order of the ranks.

    The first exception is raised, after all threads have ended.
    """
    with ThreadPoolExecutor(len(worlds)) as pool:
        futures = [pool.submit(program, world) for world in worlds]
    return [future.result() for future in futures]
