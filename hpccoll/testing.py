# SPDX-License-Identifier: Apache-2.0
"""Worlds whose ranks are threads of this process: for tests of programs that use hpccoll, and of hpccoll.

The engine, the loop and the data plane are the real ones; memory and network are this process's.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from hpccoll import bootstrap, config, errors
from hpccoll.net import Drivers, ThreadNet
from hpccoll.rendezvous import ThreadGroup, ThreadRendezvous
from hpccoll.worlds import World, from_parts

__all__ = ["make_and_run", "run", "threads"]

T = TypeVar("T")


def threads(n: int, *, drivers: Drivers = Drivers.ANY, **knobs: Any) -> list[World]:
    """Make a World of `n` ranks in this process.

    :param drivers: the net between nodes pretends that only these threads may drive it
    :param knobs: fields of Config, such as ``nodes="2+1"``
    :returns: element r is rank r's view of the World, to be used by one thread
    """
    group = ThreadGroup(n)
    return _run_all([partial(_make, group, rank, drivers, knobs) for rank in range(n)])


def run(worlds: list[World], program: Callable[[World], T]) -> list[T]:
    """Run a program once per rank, each in its own thread.

    :param worlds: as `threads` made them
    :param program: is called with the World of its rank
    :returns: what the program returned, in the order of the ranks
    :raises Exception: what the program raised. The World is ended first, so that no rank waits for ever
    """
    return _run_all([partial(_run_one, world, program) for world in worlds])


def make_and_run(n: int, program: Callable[[World], T], *, drivers: Drivers = Drivers.ANY, **knobs: Any) -> list[T]:
    """Run a program on a World that lives as long; each rank's part is made by the thread that uses it.

    The arguments and the result are those of `threads` and `run`.
    """
    group = ThreadGroup(n)

    def run_rank(rank: int) -> T:
        with _make(group, rank, drivers, knobs) as world:
            result = program(world)
            group.barrier.wait()
            return result

    return _run_all([partial(run_rank, rank) for rank in range(n)])


def _make(group: ThreadGroup, rank: int, drivers: Drivers, knobs: dict[str, Any]) -> World:
    settings = config.read(**{"verbose": 0, "check": False, **knobs})
    try:
        return from_parts(*bootstrap.make(ThreadRendezvous(group, rank), settings, provider=ThreadNet(drivers)))
    except BaseException:
        group.barrier.abort()
        raise


def _run_one(world: World, program: Callable[[World], T]) -> T:
    try:
        return program(world)
    except BaseException:
        with contextlib.suppress(errors.RecoverableError):
            world.shutdown(wait=False)
        raise


def _run_all(calls: list[Callable[[], T]]) -> list[T]:
    """Call each in its own thread. If several fail, raise an error that is no mere consequence of another rank's."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    for failure in (future.exception() for future in futures):
        if failure is not None and not isinstance(failure, (errors.ShutDownError, threading.BrokenBarrierError)):
            raise failure
    return [future.result() for future in futures]
