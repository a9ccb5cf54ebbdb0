# SPDX-License-Identifier: Apache-2.0
"""Worlds whose ranks are threads of this process: for tests of programs that use hpccoll, and of hpccoll.

The engine, the loop and the data plane are the real ones; memory and network are this process's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from hpccoll import _core, bootstrap, config, errors
from hpccoll.rendezvous import WithoutMpi
from hpccoll.world import World

__all__ = ["make_and_run", "run", "threads"]


class _Room:
    """Where the threads meet."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)
        self.shared: dict[Any, Any] = {}
        self.lock = threading.Lock()
        self.nets = _core.local_nets(size)


class _ThreadRendezvous(WithoutMpi):
    """See hpccoll.rendezvous.Rendezvous."""

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

    def net(self, _machines: list[Any], /) -> Any:
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


def threads(n: int, *, level: str = "MULTIPLE", **knobs: Any) -> list[World]:
    """Make a World of `n` ranks in this process; element r is rank r's view of it, to be used by one thread.

    :param level: pretend that the net allows this MPI thread level
    :param knobs: fields of Config, such as ``nodes="2+1"``
    """
    return _run_all([_maker(room, rank, level, knobs) for room in [_Room(n)] for rank in range(n)])


def run(worlds: list[World], program: Callable[[World], Any]) -> list[Any]:
    """Run `program` once a rank, each in its own thread; the results in order of the ranks.

    What a program raises is raised here. It ends the World first, so that the other ranks do not wait for ever.
    """
    return _run_all([partial(_run_one, world, program) for world in worlds])


def make_and_run(
    n: int, program: Callable[[World], Any], *, level: str = "MULTIPLE", **knobs: Any
) -> list[Any]:
    """Run `program` on a World that lives as long; each rank's part is made by the thread that uses it."""
    room = _Room(n)

    def one(rank: int) -> Any:
        with _maker(room, rank, level, knobs)() as world:
            result = program(world)
            room.barrier.wait()
            return result

    return _run_all([partial(one, rank) for rank in range(n)])


def _maker(room: _Room, rank: int, level: str, knobs: dict[str, Any]) -> Callable[[], World]:
    def make() -> World:
        settings = config.read(**{"verbose": 0, **knobs})
        try:
            return World.from_parts(*bootstrap.make(_ThreadRendezvous(room, rank, level), settings))
        except BaseException:
            room.barrier.abort()
            raise

    return make


def _run_one(world: World, program: Callable[[World], Any]) -> Any:
    try:
        return program(world)
    except BaseException:
        world.shutdown(wait=False)
        raise


def _run_all(calls: list[Callable[[], Any]]) -> list[Any]:
    """Call each in its own thread. An error that others only felt is not the one to raise."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    for failure in (future.exception() for future in futures):
        if failure is not None and not isinstance(
            failure, (errors.ShutDownError, threading.BrokenBarrierError)
        ):
            raise failure
    return [future.result() for future in futures]
