# SPDX-License-Identifier: Apache-2.0
"""The workers of an elastic RayExecutor, which survives lost ranks: the job of `hpccoll run`, with Ray's actors.

The coordinator, its rules and the workers are those of hpccoll.tools.launch.elastic. Ray is the agent: a node of Ray is
a host, an actor is a worker, and the list of live nodes replaces the output of a discovery script.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hpccoll.ray.settings import ElasticLayout, Settings
from hpccoll.ray.worker import Worker
from hpccoll.tools.launch.elastic.events import Action, End
from hpccoll.tools.launch.elastic.job import Elastic, Runner
from hpccoll.tools.launch.elastic.membership import Limits
from hpccoll.tools.launch.job import LaunchError

__all__ = ["ElasticWorkers", "slots"]

EVERY = 1.0
"""Seconds between two looks at Ray's nodes."""


class ElasticWorkers:
    """Runs each call as a separate elastic job."""

    def __init__(self, settings: Settings, layout: ElasticLayout, variables: Mapping[str, str]) -> None:
        self._layout = layout
        self._variables = {**settings.variables, **variables}
        self._making: tuple[Any, ...] = ()

    def make(self, cls: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Let each worker make the object that execute() hands to functions."""
        self._making = (cls, args, kwargs)

    def run(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all workers, also of those that join later.

        :returns: the results of the ranks of the last generation, by rank
        :raises LaunchError: the job cannot continue, chained to the last exception of a rank; or a rank has ended
            before the function returned
        """
        found = slots(self._layout)
        low, high = self._layout.min_workers, self._layout.max_workers or 10**6
        limits = Limits(
            np=max(low, min(high, sum(found.values()))),
            min_np=low,
            max_np=high,
            elastic_timeout=self._layout.elastic_timeout,
            reset_limit=self._layout.reset_limit,
            cooldown=self._layout.cooldown_range,
            discovers=True,
        )
        runner = _RayRunner(Elastic((), limits, found), self._layout, self._variables, (self._making, method, args))
        status = runner.run()
        why = (runner.why or f"status {status}") if status else runner.missing()
        if why:
            raise LaunchError(f"RayExecutor: the job has ended: {why}") from runner.raised
        return runner.values()

    def end(self) -> None:
        """Do nothing: no actors live between two calls."""


def slots(layout: ElasticLayout) -> dict[str, int]:
    """The number of worker slots of each live node of Ray, by its number and address."""
    found = {}
    for node in ray.nodes():
        fits = [int(node["Resources"].get(name, 0) / count) for name, count in layout.resources.items() if count]
        if node["Alive"] and fits and min(fits):
            found[f"{node['NodeID']}@{node['NodeManagerAddress']}"] = min(fits)
    return found


class _Nodes:
    """Looks for Ray's nodes each second; see hpccoll.tools.launch.elastic.discovery."""

    def __init__(self, layout: ElasticLayout, tell: Callable[[Mapping[str, int]], None]) -> None:
        self._layout, self._tell = layout, tell
        self._ends = threading.Event()

    def begin(self) -> None:
        threading.Thread(target=self._look, name="hpccoll discovery", daemon=True).start()

    def end(self) -> None:
        self._ends.set()

    def _look(self) -> None:
        while not self._ends.wait(EVERY):
            with contextlib.suppress(Exception):  # Ray may be busy: the next poll tells
                self._tell(slots(self._layout))


class _RayAgent:
    """Starts, watches and kills the workers of a node."""

    def __init__(self, node: str, layout: ElasticLayout, variables: Mapping[str, str], task: Any, tell: Any) -> None:
        self._layout, self._variables, self._task, self._tell = layout, variables, task, tell
        self._place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        self._actors: dict[int, Any] = {}
        self.name = (node, 0)
        """No connection has this name."""

    def start(self, worker: int, variables: Mapping[str, str]) -> None:
        """See LocalAgent."""
        remote: Callable[..., Any] = ray.remote(Worker).options
        actor = remote(
            num_cpus=self._layout.cpus_per_worker,
            num_gpus=self._layout.gpus_per_worker,
            scheduling_strategy=self._place,
        ).remote()
        self._actors[worker] = actor
        reference = actor.serve.remote({**self._variables, **variables}, *self._task)
        threading.Thread(target=self._watch, args=(worker, actor, reference), daemon=True).start()

    def _watch(self, worker: int, actor: Any, reference: Any) -> None:
        results: list[Any] = []
        error = None
        try:
            results = ray.get(reference)
        except Exception as raised:  # noqa: BLE001 - Ray reraises any exception of the function
            error = raised
            ray.kill(actor)  # a worker that raised is still in its World
        self._tell(worker, results, error)

    def signal(self, worker: int, _number: int) -> None:
        """See LocalAgent: the only signal is SIGKILL."""
        if actor := self._actors.get(worker):
            ray.kill(actor)

    def ask_to_end(self, _number: int) -> None:
        """See AgentProcess."""
        for worker in list(self._actors):
            self.signal(worker, 0)

    def end(self, _seconds: float) -> None:
        """Do nothing: Ray has killed the workers."""


class _RayRunner(Runner):
    """Runs one job; its agents are Ray's."""

    def __init__(self, job: Elastic, layout: ElasticLayout, variables: Mapping[str, str], task: Any) -> None:
        nodes: Any = _Nodes(layout, self.discovered)
        super().__init__(job, {}, nodes)
        self._layout, self._call = layout, task
        own = self._task["variables"]
        self._common: dict[str, str] = {**own, **variables}
        self._values: dict[int, Any] = {}
        self.why = ""
        self.raised: Exception | None = None

    def values(self) -> list[Any]:
        """The results of the last members, by rank."""
        return [self._values[member] for member in self._membership.members if member in self._values]

    def missing(self) -> str:
        """Say which ranks have no result; "": none."""
        return self.without_result(self._values)

    def _agent_of(self, host: str) -> Any:
        agents: dict[str, Any] = self._agents
        if host not in agents:
            node, _, _ = host.partition("@")
            agents[host] = _RayAgent(node, self._layout, self._common, self._call, self._answered)
        return agents[host]

    def _answered(self, worker: int, results: list[Any], error: Exception | None) -> None:
        if error is None:
            if results:
                self._values[worker] = results[0]
            self._ended(worker, 0, "exit status 0")
            return
        self.raised = error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self._ended(worker, 1, lines[-1] if lines else type(error).__name__)

    def _carry_out(self, action: Action) -> int | None:
        if isinstance(action, End):
            self.why = action.why
        return super()._carry_out(action)
