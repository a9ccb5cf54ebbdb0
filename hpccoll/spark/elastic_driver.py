# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on Spark: the job of `hpccoll run`, whose agents are the tasks of a Spark job.

The coordinator, its rules and the workers are those of hpccoll.tools.launch.elastic. A task is the agent of one slot;
if an executor is lost, its agents and workers end, the others continue, and Spark's retries of the lost tasks start new
agents, which are new slots.
"""

import contextlib
import functools
import pickle
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from hpccoll import errors
from hpccoll.spark.driver import context_of, reason
from hpccoll.spark.elastic_task import SlotTask, in_slot
from hpccoll.tools.launch.elastic.agents import END, AgentName
from hpccoll.tools.launch.elastic.events import Action, Discovered, End
from hpccoll.tools.launch.elastic.job import Elastic, Runner, Stop
from hpccoll.tools.launch.elastic.membership import Limits
from hpccoll.tools.launch.elastic.server import CutHost, HostCame
from hpccoll.tools.launch.function import CALLER, Results, checked_variables
from hpccoll.tools.launch.job import LaunchError
from hpccoll.tools.launch.listener import Listener

__all__ = ["run_elastic"]

LAST = 15.0
"""Seconds for the tasks to end after the job, before the driver cancels them."""


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
    nics: str | Sequence[str] | None = None,
    executable: str | None = None,
    verbose: int = 1,
) -> list[Any]:
    """Call a function on the ranks of an elastic job, which Spark starts, and wait for its results.

    The function uses `hpccoll.elastic.run` or `hvd.elastic.run`. Each of `max_num_proc` Spark tasks is the agent of one
    slot and starts the worker there, a new process. A worker that is lost is started again by its agent; tasks that are
    lost with their executor are started again by Spark (`spark.task.maxFailures`), and the survivors do not wait.

    :param fn: what each rank calls
    :param args: its arguments, the same on all ranks
    :param kwargs: its arguments by keyword
    :param num_proc: how many ranks to begin with; None: `spark.default.parallelism`
    :param min_num_proc: go on while there are so many; None: `num_proc`
    :param max_num_proc: take in ranks up to so many; None: `num_proc`
    :param start_timeout: seconds that the ranks have to meet in `init()`; None: HPCCOLL_START_TIMEOUT
    :param elastic_timeout: seconds to wait for `min_num_proc` ranks; None: 600
    :param reset_limit: how often the ranks may change; None: any number of times
    :param env: variables to set in the ranks
    :param nics: interfaces that carry data between hosts (HPCCOLL_INTERFACE); None: chosen
    :param executable: the Python of the ranks; None: that of the executors
    :param verbose: Horovod's, without effect
    :returns: what the function returned on the ranks that were there at the end, in their order
    :raises LaunchError: the job cannot go on, with the reason, chained to what a rank has raised last; a rank has
        ended before the function returned; or there is no SparkContext, as with Spark Connect
    """
    del verbose
    context = context_of(SparkSession.getActiveSession())
    if context is None:
        raise LaunchError("hpccoll.spark.run_elastic: there is no SparkContext: SparkSession.builder.getOrCreate()")
    env = checked_variables("hpccoll.spark.run_elastic: env", env)
    limits = _limits(int(context.defaultParallelism) if num_proc is None else num_proc, min_num_proc, max_num_proc)
    limits = replace(limits, elastic_timeout=elastic_timeout or limits.elastic_timeout, reset_limit=reset_limit)
    interface = nics if isinstance(nics, str) else ",".join(nics or ())
    variables = {"HPCCOLL_START_TIMEOUT": f"{start_timeout:g}"} if start_timeout else {}
    variables |= {"HPCCOLL_INTERFACE": interface} if interface else {}
    results = Results(cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))))
    address = socket.gethostbyname(context.getConf().get("spark.driver.host"))
    with Listener([address], results.serve) as listener:
        common = {**variables, **env, CALLER: listener.variable}
        job = Elastic((), limits, {}, exported=common, address=address)
        runner = _SparkRunner(job, context, executable or "")
        status = runner.run()
    return runner.values(results, status)


def _limits(size: int, least: int | None, most: int | None) -> Limits:
    low, high = (size if given is None else given for given in (least, most))
    if not all(isinstance(number, (int, np.integer)) for number in (low, size, high)) or not 1 <= low <= size <= high:
        raise errors.InvalidArgumentError(
            f"hpccoll.spark.run_elastic: min_num_proc {low}, num_proc {size}, max_num_proc {high}: needs 1 <= min <= "
            "num <= max"
        )
    return Limits(size, low, high, discovers=True)


class _Slot:
    """The agent of one slot: a task of Spark; see AgentProcess."""

    def __init__(self, slot: str, order: Callable[[AgentName, dict[str, Any]], None]) -> None:
        self.name = (slot, 0)  # a task that Spark starts again is another slot
        self._order = functools.partial(order, self.name)

    def start(self, worker: int, variables: Mapping[str, str]) -> None:
        self._order({"start": worker, "variables": dict(variables)})

    def signal(self, worker: int, number: int) -> None:
        self._order({"signal": worker, "number": int(number)})

    def ask_to_end(self, _number: int) -> None:
        self._order({END: True})

    def end(self, _seconds: float) -> None:
        """Do nothing: _Tasks waits for the tasks."""


class _Tasks:
    """The Spark job whose tasks are the agents; see hpccoll.tools.launch.elastic.discovery."""

    def __init__(self, context: Any, count: int, ended: Callable[[str], None]) -> None:
        self._context, self._count, self._ended = context, count, ended
        self._group = f"hpccoll-{secrets.token_hex(4)}"
        self._thread = threading.Thread(target=self._run, name="hpccoll spark", daemon=True)
        self.task: SlotTask | None = None

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Do nothing: the driver first tells the agents to end."""

    def wait(self) -> None:
        """Wait until the tasks have ended, also those for which Spark had no free slot."""
        self._thread.join(LAST)
        with contextlib.suppress(Exception):  # of Spark, which has ended
            self._context.cancelJobGroup(self._group)
        self._thread.join(LAST)

    def _run(self) -> None:
        assert self.task is not None
        try:
            self._context.setJobGroup(self._group, "hpccoll.spark.run_elastic", interruptOnCancel=True)
            rows = self._context.parallelize(range(self._count), self._count)
            rows.mapPartitionsWithIndex(functools.partial(in_slot, self.task)).collect()
            why = "its tasks have ended"
        except Exception as error:  # noqa: BLE001 - of a class that depends on Spark's version
            why = reason(error)
        self._ended(why)


class _SparkRunner(Runner):
    """Runs one job; its agents come by themselves."""

    def __init__(self, job: Elastic, context: Any, executable: str) -> None:
        self._tasks = _Tasks(context, job.limits.max_np, self._spark_has_ended)
        tasks: Any = self._tasks
        super().__init__(job, {}, tasks)
        variables: Any = self._task["variables"]
        self._tasks.task = SlotTask(variables, executable)
        self._slots: dict[str, int] = {}
        self._why = ""

    def run(self) -> int:
        try:
            return super().run()
        finally:
            for host in set(self._slots) - set(self._agents):
                self._server.send((host, 0), {END: True})
            self._tasks.wait()

    def values(self, results: Results, status: int) -> list[Any]:
        """Give the results of the last members, by rank.

        :raises LaunchError: the job has failed, or a rank has ended without a result
        """
        values = []
        for member in self._membership.members:
            value, problem = pickle.loads(results.answer(member) or pickle.dumps((None, None)))
            if problem is not None:
                self._why, status = f"{self._why}\n{problem[1]}", status or 1
            values.append((bool(results.answer(member)), value, problem))
        if not status:
            self._why = self.without_result([member for member in self._membership.members if results.answer(member)])
            if not self._why:
                return [value for there, value, _ in values if there]
        cause = None
        for _, _, problem in values:
            with contextlib.suppress(Exception):  # its class may refuse to be unpickled
                cause = pickle.loads(problem[2]) if problem else cause
        raise LaunchError(f"hpccoll.spark.run_elastic: the job has ended: {self._why or f'status {status}'}") from cause

    def _spark_has_ended(self, why: str) -> None:
        self._events.put(Stop(1, f"Spark has ended the job's tasks: {why}"))

    def _take_host(self, event: HostCame) -> int | None:
        self._slots[event.host] = 1
        return self._step(Discovered(dict(self._slots)))

    def _lose_host(self, event: CutHost) -> int | None:
        self._slots.pop(event.host, None)
        self._agent_of(event.host)  # also removes an agent without a worker
        ended = self._step(Discovered(dict(self._slots)))  # before its workers end, so that no worker is started there
        return ended if ended is not None else super()._lose_host(event)

    def _agent_of(self, host: str) -> Any:
        agents: dict[str, Any] = self._agents
        if host not in agents:
            agents[host] = _Slot(host, self._server.order)
        return agents[host]

    def _carry_out(self, action: Action) -> int | None:
        if isinstance(action, End):
            self._why = action.why
        return super()._carry_out(action)
