# SPDX-License-Identifier: Apache-2.0
"""The task of the barrier stage: the agent of one rank, which runs in a new process.

A Python worker of Spark serves one task after another; a rank in a fresh process inherits no state of an earlier
task, and the task reports its end to the driver, also after a crash. So a task always returns an outcome, and only the
loss of an executor fails the stage.
"""

import contextlib
import json
import os
import pickle
import platform
import queue
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark import BarrierTaskContext

from hpccoll import _core, inherited
from hpccoll.channel import parse, text_of
from hpccoll.errors import StartError
from hpccoll.rendezvous.launcher_store import LauncherStore
from hpccoll.spark.spool import spooled
from hpccoll.tools.launch.direct.job_store import JobStore, variables_at
from hpccoll.tools.launch.elastic.agents import LocalAgent
from hpccoll.tools.launch.function import CALLER, Results
from hpccoll.tools.launch.listener import LOOPBACK, Listener

__all__ = ["Outcome", "Task", "in_arrow", "in_barrier", "visible_devices"]

FAILED = "hpccoll-spark/failed"
"""The key that the agent of a rank sets that has failed."""
GRACE = 5.0
"""Seconds that the other ranks have to end by themselves when one has failed, and again after SIGTERM."""
POLL = 0.5


@dataclass(frozen=True)
class Task:
    """The parameters of all tasks, from the driver."""

    function: bytes
    """The function and its arguments, pickled."""
    secret: str
    variables: Mapping[str, str]
    executable: str
    """The Python of the ranks; "": the Python of the task."""


@dataclass(frozen=True)
class Outcome:
    """The end of a rank."""

    rank: int
    place: str
    answer: bytes
    """Its result or exception, pickled; b"": the process has ended without an answer."""
    how: str
    """The end of the process, in words."""
    ended_by_agent: bool = False
    """The agent has ended it, because another rank had failed."""


def in_arrow(task: Task, mask: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Start a rank that has the task's rows, and wait for its end; a function for mapInArrow with `barrier=True`.

    :param mask: see `spooled`
    """
    import pyarrow

    with spooled(batches, mask) as variables:
        outcomes = list(in_barrier(replace(task, variables={**task.variables, **variables}), ()))
    yield pyarrow.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome) for outcome in outcomes]})


def in_barrier(task: Task, _partition: Iterable[Any]) -> Iterator[Outcome]:
    """Start a rank and wait for its end; called in each task of a barrier stage."""
    context = BarrierTaskContext.get()
    hosts = [info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos()]
    with contextlib.ExitStack() as stack:
        gpus = context.resources().get("gpu")
        mine: list[Any] = [_core.machine_name(), [], list(gpus.addresses) if gpus else []]
        if context.partitionId() == 0:
            store = stack.enter_context(JobStore(hosts, task.secret))
            mine[1] = parse(store.text)[1]
        told = [json.loads(text) for text in context.allGather(json.dumps(mine))]
        text = text_of(task.secret, [(host, port) for host, port in told[0][1]])
        places = [machine for machine, _, _ in told]  # the partitions of a machine have successive ranks
        order = sorted(range(len(told)), key=lambda at: places.index(places[at]))
        rank, machines = order.index(context.partitionId()), [told[at][0] for at in order]
        seen = visible_devices(rank, machines, [told[at][2] for at in order])
        task = replace(task, variables={**seen, **task.variables})
        outcome = _Rank(task, rank, variables_at(text, machines, "Spark")[rank], text).run()
        context.barrier()  # the first task serves the store until then
    yield outcome


def visible_devices(rank: int, machines: Sequence[str], devices: Sequence[Sequence[str]]) -> dict[str, str]:
    """Let a rank see the GPUs that Spark has assigned to the tasks of its machine, so that its local rank is its own.

    :param machines: of each rank
    :param devices: the addresses of each rank's GPUs
    """
    mine = [gpu for machine, gpus in zip(machines, devices, strict=True) if machine == machines[rank] for gpu in gpus]
    return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(mine))} if mine else {}


class _Rank:
    """The process of a rank, and its agent's connection to the store."""

    def __init__(self, task: Task, rank: int, variables: Mapping[str, str], store: str) -> None:
        self._task, self._rank, self._variables = task, rank, variables
        self._store = LauncherStore(store)
        self._results = Results(task.function)
        self._ended: queue.SimpleQueue[tuple[int, int, str]] = queue.SimpleQueue()

    def run(self) -> Outcome:
        """Start the process, and wait for its end."""
        with Listener([LOOPBACK], self._results.serve) as listener:
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            environment = {**inherited.environment(), "PYTHONPATH": path, **self._task.variables, **self._variables}
            environment[CALLER] = listener.variable
            command = [self._task.executable or sys.executable, "-m", "hpccoll.tools.launch.call"]
            agent = LocalAgent(command, environment, "", lambda *ended: self._ended.put(ended))
            agent.start(self._rank, {})
            how, asked = self._wait(agent)
        answer = self._results.answer(self._rank)
        place = f"{platform.node()}, agent's pid {os.getpid()}"
        return Outcome(self._rank, place, answer, how, ended_by_agent=asked and not answer)

    def _wait(self, agent: LocalAgent) -> tuple[str, bool]:
        """Wait for the end of the process; if another rank has failed, only for some seconds.

        :returns: how it has ended, and whether the agent has requested the end
        """
        limit, asked = float("inf"), False
        while True:
            with contextlib.suppress(queue.Empty):
                _, status, how = self._ended.get(timeout=POLL)
                if status and not asked:
                    self._store.set(FAILED, b"")
                return how, asked
            if limit == float("inf") and self._another_has_failed():
                limit = time.monotonic() + GRACE
            if time.monotonic() > limit and not asked:
                asked = True
                agent.end_all(signal.SIGTERM, GRACE)

    def _another_has_failed(self) -> bool:
        try:
            return self._store.check([FAILED])
        except (OSError, ValueError, StartError):
            return True  # the store has ended, so the first task has
