# SPDX-License-Identifier: Apache-2.0
"""Stopping before the job is stopped: all ranks after the same step, saved, and back in the queue.

>>> with hpccoll.preemption() as p:
...     for step in range(100):
...         total = hpccoll.allreduce(np.ones(3), name="gradient")
...         if p.should_stop():
...             np.save(f"weights-{hpccoll.rank()}.npy", total)
...             answer = p.requeue()
...             break

A signal on one rank, or the end of the job's time, is one bit that rides in the agreement of the operations. It has a
position in the log that is the same on all ranks, and counts for a program from the first operation on that it has
waited for and that does not lie before it. So ranks that ask after the same operations get the same answer, without an
operation of their own (docs/control-plane.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple, Self

from hpccoll import collectives, config, errors, scheduler
from hpccoll.world import World, current

__all__ = ["Preemption", "preemption"]


class Preemption:
    """Listens for signals while its `with` block runs; see preemption()."""

    def __init__(
        self,
        signals: Iterable[int] | None,
        end: float | datetime.datetime | None,
        margin: float | None,
        world: World | None,
    ) -> None:
        """See preemption()."""
        self.reason = ""
        """Why this rank asked ("SIGUSR1", "the end of the job's time"), or "" if it did not."""
        env = config.environment()
        self._world = world
        own = current(world)
        self._signals = tuple(signal.Signals(s) for s in (_signals_of(env) if signals is None else signals))
        self._deadline = _deadline(own, end, margin)
        self._before: dict[signal.Signals, _Handler] = {}
        self._seen: set[int] = set()
        self._asked: object = None  # the process set that knows
        self._said = False

    # ---- the block ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._signals and threading.current_thread() is not threading.main_thread():
            raise errors.InvalidArgumentError(
                "preemption: Python installs signal handlers in the main thread only. Enter the block there, or give "
                "signals=(): the end time and ask() work in every thread"
            )
        for number in self._signals:
            self._before[number] = _Handler.of(number)
            signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        """Give the signals back, but for those that somebody else has taken meanwhile."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                before.restore(number)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name, again = signal.Signals(number), number in self._seen
        self._seen.add(number)
        if name in self._before and callable(before := self._before[name].python):
            before(number, frame)
        if name is signal.SIGTERM and again:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.ask(name.name)

    # ---- what the program calls -----------------------------------------------------------------------

    def ask(self, reason: str = "the program") -> None:
        """Ask all ranks to stop, as a signal does; one rank is enough. Does not wait."""
        self.reason = self.reason or reason
        with contextlib.suppress(errors.ShutDownError):  # between two Worlds: should_stop() asks the next one
            own = current(self._world).core
            if own is not self._asked:
                own.preempt()
                self._asked = own

    def should_stop(self) -> bool:
        """Whether to stop now: the same answer on all ranks that have waited for the same operations of the World.

        Ask at the end of a step, after a result that every rank waits for. Costs no message and never waits.
        """
        if self.reason or time.time() >= self._deadline:
            self.ask("the end of the job's time")
        own = current(self._world)
        if (
            self.reason and own.size == 1
        ):  # nobody to agree with, and a program may make no operation of its own
            collectives.barrier(name="hpccoll.preempted", world=own)
        if not own.core.preempted():
            return False
        if own.rank == 0 and own.base.settings.verbose and not self._said:
            self._said = True
            print(
                f"hpccoll: all ranks stop after this step: {self.reason or 'asked by another rank'}",
                file=sys.stderr,
                flush=True,
            )
        return True

    def requeue(self) -> scheduler.Requeue:
        """Have the scheduler run this job again; all ranks of the World call it, after what they want to keep is saved.

        Rank 0 speaks to the scheduler when all have come (Slurm: `scontrol requeue`, LSF: `brequeue`), says on stderr
        what it did, and tells the others. A scheduler that agrees ends the job at once.

        :returns: the same on all ranks
        """
        own = current(self._world)
        collectives.barrier(name="hpccoll.requeue", world=own)
        answer = None
        if own.rank == 0:
            answer = scheduler.requeue(config.environment())
            print(f"hpccoll: requeue: {answer.text}", file=sys.stderr, flush=True)
        told: scheduler.Requeue = collectives.broadcast_object(answer, name="hpccoll.requeued", world=own)
        return told


def preemption(
    signals: Iterable[int] | None = None,
    *,
    end: float | datetime.datetime | None = None,
    margin: float | None = None,
    world: World | None = None,
) -> Preemption:
    """Listen for the end, in a `with` block: a signal on any rank, or the end of the job's time.

    Handlers that were installed before are back after the block, and called in it if they are Python's. A second
    SIGTERM on a rank ends it at once.

    :param signals: default: SIGUSR1 and SIGTERM, under LSF SIGUSR2 as well, which it sends at the run limit; (): none
    :param end: when the job's time ends, in seconds since the epoch or as a datetime. Default: HPCCOLL_END_TIME, or
        else what the scheduler says (see hpccoll.scheduler), or else never
    :param margin: seconds before that, to save; default: HPCCOLL_PREEMPT_MARGIN, but at most a tenth of the time left
    :param world: whose ranks stop together, after operations of this World
    """
    return Preemption(signals, end, margin, world)


class _Handler(NamedTuple):
    """What is done about a signal: for Python, and for the kernel, where it may be a handler of some C library."""

    python: Any
    kernel: ctypes.Array[ctypes.c_char]

    @classmethod
    def of(cls, number: signal.Signals) -> _Handler:
        action = ctypes.create_string_buffer(1024)  # a struct sigaction has 152 bytes on Linux
        ctypes.CDLL(None).sigaction(int(number), None, action)
        return cls(signal.getsignal(number), action)

    def restore(self, number: signal.Signals) -> None:
        signal.signal(number, self.python or signal.SIG_DFL)
        ctypes.CDLL(None).sigaction(int(number), self.kernel, None)


def _signals_of(env: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    common = (signal.SIGUSR1, signal.SIGTERM)
    return (*common, signal.SIGUSR2) if "LSB_JOBID" in env else common


def _deadline(own: World, end: float | datetime.datetime | None, margin: float | None) -> float:
    """When to stop, in seconds since the epoch. A job so short that the margin were most of it gets a smaller one."""
    settings = own.base.settings
    if end is None:
        end = settings.end_time or _end_of_job(own)
    elif isinstance(end, datetime.datetime):
        end = end.timestamp()
    if margin is None:
        margin = min(settings.preempt_margin, max(0.0, (end - time.time()) / 10))
    return end - margin


def _end_of_job(own: World) -> float:
    """One rank asks the scheduler's server, where the environment does not tell: it is enough that one knows."""
    end, why = scheduler.end_of_job(config.environment(), ask=own.rank == 0)
    if why and own.rank == 0 and own.base.settings.verbose:
        remedy = "give HPCCOLL_END_TIME, or have a signal sent"
        print(
            f"hpccoll: preemption: the end of the job's time is unknown ({why}): {remedy}",
            file=sys.stderr,
            flush=True,
        )
    return end
