# SPDX-License-Identifier: Apache-2.0
"""Stops all ranks after the same step before the scheduler ends the job, so that they can save and run again.

>>> with hpccoll.preemption() as p:
...     for step in range(100):
...         total = hpccoll.allreduce(np.ones(3), name="gradient")
...         if p.should_stop():
...             np.save(f"weights-{hpccoll.rank()}.npy", total)
...             answer = p.requeue()
...             break

A signal on one rank, or the end of the job's time, sets one bit in the control messages of the operations. The bit has
a position in the log that is the same on all ranks. It counts for a program as soon as the program has waited for an
operation at or after that position, or one of its compiled programs (JAX, TensorFlow) has ended such an operation. So
ranks that ask after the same operations get the same answer, without an operation of their own (docs/control-plane.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple, Self

import numpy as np

from hpccoll import errors, inherited, programs, scheduler
from hpccoll.default_world import current
from hpccoll.outside import check_inside
from hpccoll.reductions import MAX
from hpccoll.text import say
from hpccoll.worlds import World

__all__ = ["Preemption", "is_asked_to_stop", "preemption"]


def is_asked_to_stop(world: World) -> bool:
    """Tell whether a rank has asked all to stop, at an operation whose end this rank has seen.

    :returns: the same answer on all ranks that have made the same operations
    """
    programs.wait_for_programs()  # a rank whose programs are slower gives the same answer
    return bool(world.core.preempted())


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
        """This rank's reason to stop ("SIGUSR1", "the end of the job's time"), or "" without a request."""
        env = inherited.environment()
        self._world = world
        world = current(world)
        check_inside(world.core, "preemption")
        try:
            self._signals = tuple(signal.Signals(s) for s in (_signals_of(env) if signals is None else signals))
        except (TypeError, ValueError):
            text = f"preemption: signals is {signals!r}: give signals of Python's module, as (signal.SIGUSR1,)"
            raise errors.InvalidArgumentError(text) from None
        self._deadline = _deadline(world, end, margin)
        self._before: dict[signal.Signals, _Handler] = {}
        self._seen: set[int] = set()
        self._asked: object = None  # the process set that was asked to stop
        self._announced = False

    # ---- the block ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._signals and threading.current_thread() is not threading.main_thread():
            raise errors.InvalidArgumentError(
                "preemption: Python installs signal handlers in the main thread only. Enter the block there, or give "
                "signals=(): the end time and ask() work in every thread"
            )
        for number in self._signals:
            self._before[number] = _Handler.of(number)
            try:
                signal.signal(number, self._on_signal)
            except OSError as error:
                self._restore()
                text = f"preemption: no program can handle {number.name}: {error.strerror}"
                raise errors.InvalidArgumentError(text) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        """Restore the handlers, except for signals for which the program has installed another one meanwhile."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                before.restore(number)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name, again = signal.Signals(number), number in self._seen
        self._seen.add(number)
        before = self._before[name].python if name in self._before else None
        if before is signal.default_int_handler and not again:
            before = None  # Python's own, which would raise at the first Ctrl-C
        if callable(before):
            before(number, frame)
        if name is signal.SIGTERM and again:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.ask(name.name)

    # ---- methods for programs -------------------------------------------------------------------------

    def ask(self, reason: str = "the program") -> None:
        """Ask all ranks to stop, as a signal does. One rank is enough; it does not wait for the others.

        :param reason: shown by rank 0 if it asked, and kept in `self.reason`
        """
        self.reason = self.reason or reason
        with contextlib.suppress(errors.ShutDownError):  # between two Worlds: should_stop() asks the next one
            world = current(self._world).core
            if world is not self._asked:
                world.preempt()
                self._asked = world

    def should_stop(self) -> bool:
        """Tell whether to stop now.

        Call it at the end of a step, after an operation for which every rank has waited. It sends no message and never
        waits.

        :returns: the same answer on all ranks that have waited for the same operations of the World
        """
        if self.reason or time.time() >= self._deadline:
            self.ask("the end of the job's time")
        world = current(self._world)
        if self.reason and world.size == 1:  # a program of one rank may do without operations: agree here
            world.barrier(name="hpccoll.preempted")
        if not is_asked_to_stop(world):
            return False
        if world.rank == 0 and world.base.settings.verbose and not self._announced:
            self._announced = True
            say(f"hpccoll: all ranks stop after this step: {self.reason or 'asked by another rank'}")
        return True

    def requeue(self) -> scheduler.Requeue:
        """Ask the scheduler to run this job again; all ranks call it, after saving their state.

        When all ranks have called it, rank 0 asks the scheduler (Slurm: `scontrol requeue`, LSF: `brequeue`), prints
        the result on stderr and sends it to the others. A scheduler that agrees ends the job at once. A job that its
        user has cancelled stays so: Slurm tells that, and under LSF SIGTERM is the only reason then.

        :returns: whether the job will run again, and the details; the same on all ranks
        """
        world = current(self._world)
        reasons = np.array([self.reason == "SIGTERM", self.reason not in ("", "SIGTERM")], np.int32)
        terminated, warned = world.allreduce(reasons, MAX, name="hpccoll.requeue")  # all ranks have saved when it ends
        answer = None
        if world.rank == 0:
            answer = scheduler.requeue(inherited.environment(), killed=bool(terminated and not warned))
            say(f"hpccoll: requeue: {answer.text}")
        result: scheduler.Requeue = world.broadcast_object(answer, name="hpccoll.requeued")
        return result


def preemption(
    signals: Iterable[int] | None = None,
    *,
    end: float | datetime.datetime | None = None,
    margin: float | None = None,
    world: World | None = None,
) -> Preemption:
    """Wait for the end of the job in a `with` block: for a signal on any rank, or for the end of the job's time.

    Inside the block, Python handlers that were installed before are still called; after it, all handlers are restored.
    A second SIGTERM on a rank ends it at once, and a second SIGINT is a KeyboardInterrupt.

    :param signals: the signals; default: SIGUSR1 and SIGTERM, and under LSF SIGUSR2, which it sends at the run limit;
        (): none
    :param end: the end of the job's time, in seconds since the epoch or as a datetime. Default: HPCCOLL_END_TIME, or
        the scheduler's answer (see hpccoll.scheduler); without either there is no end
    :param margin: seconds before `end` at which to stop; default: HPCCOLL_PREEMPT_MARGIN, but at most a tenth of the
        time left
    :param world: the ranks of this World stop together, after operations of this World; default: the default World
    :returns: a context manager with should_stop(), requeue() and ask()
    :raises InvalidArgumentError: `signals`, `end`, `margin` or SLURM_JOB_END_TIME make no sense; on entering the block
        outside of the main thread, where Python cannot install handlers, or for a signal that no program can handle
    :raises ShutDownError: there is no World
    """
    return Preemption(signals, end, margin, world)


class _Handler(NamedTuple):
    """The handlers of a signal: Python's, and the kernel's, which may belong to a C library."""

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


def _deadline(world: World, end: float | datetime.datetime | None, margin: float | None) -> float:
    """The time at which to stop, in seconds since the epoch; a short job gets a smaller margin."""
    settings = world.base.settings
    if end is None:
        end = settings.end_time or _end_of_job(world)
    elif isinstance(end, datetime.datetime):
        end = end.timestamp()
    end = _seconds("end", end)
    if margin is None:
        margin = min(settings.preempt_margin, max(0.0, (end - time.time()) / 10))
    margin = _seconds("margin", margin)
    if margin < 0 or math.isinf(margin):
        raise errors.InvalidArgumentError(f"preemption: margin is {margin}: give a number of seconds, 0 or more")
    return end - margin


def _seconds(name: str, value: Any) -> float:
    """Check an argument of preemption().

    :raises InvalidArgumentError: it is no number
    """
    if not isinstance(value, int | float | np.number) or math.isnan(value):
        raise errors.InvalidArgumentError(f"preemption: {name} is {value!r}: give a number of seconds")
    return float(value)


def _end_of_job(world: World) -> float:
    """The end of the job's time; where the environment does not tell, rank 0 alone asks the scheduler's server."""
    end, why = scheduler.end_of_job(inherited.environment(), ask=world.rank == 0)
    if why and world.rank == 0 and world.base.settings.verbose:
        remedy = "give HPCCOLL_END_TIME, or have a signal sent"
        say(f"hpccoll: preemption: the end of the job's time is unknown ({why}): {remedy}")
    return end
