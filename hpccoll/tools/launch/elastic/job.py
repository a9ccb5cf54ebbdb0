# SPDX-License-Identifier: Apache-2.0
"""An elastic job: the loop that gives events to the membership and carries out its actions."""

import argparse
import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpccoll import config, inherited
from hpccoll.channel import new_secret
from hpccoll.errors import InvalidArgumentError
from hpccoll.launch_protocol import COORDINATOR, WORKER
from hpccoll.text import some_ranks
from hpccoll.tools.launch.agent_start import THIS_MACHINE
from hpccoll.tools.launch.elastic.agent_process import HERE, AgentProcess
from hpccoll.tools.launch.elastic.agents import AgentName
from hpccoll.tools.launch.elastic.discovery import Discovery, TooSlowError
from hpccoll.tools.launch.elastic.events import (
    Action,
    Answer,
    Change,
    Discovered,
    End,
    Event,
    Form,
    Gone,
    HostLost,
    Kill,
    Release,
    Say,
    Start,
    Tick,
    Void,
)
from hpccoll.tools.launch.elastic.membership import Limits, Membership
from hpccoll.tools.launch.elastic.server import Cut, CutHost, HostCame, Server
from hpccoll.tools.launch.job import LaunchError, split_words
from hpccoll.tools.launch.listener import addresses_towards
from hpccoll.tools.launch.processes import say

PEER_TIMEOUT = "5"
"""HPCCOLL_PEER_TIMEOUT of an elastic job, in seconds: a rank that is stopped for so long is replaced."""
TICK = 0.25
REAPING = 2.0
"""Seconds between the end of a connection and that of its process, before the process is killed."""
LAST = 8.0
"""Seconds that the agents have to end at the end of the job; they kill their workers after 5."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals of which each ends the job."""
FOREVER = 1e9
"""Seconds of a job without a limit."""
TIMED_OUT = 124


@dataclass(frozen=True)
class Elastic:
    """An elastic job, as the user requests it."""

    command: tuple[str, ...]
    limits: Limits
    hosts: Mapping[str, int]
    script: str = ""
    slots_per_host: int = 1
    output: str = ""
    timeout: float | None = None
    way: str = "ssh"
    """The program that starts agents on other hosts: ssh, or srun inside of Slurm."""
    way_options: tuple[str, ...] = ()
    exported: Mapping[str, str] = field(default_factory=dict)
    """Variables of workers on other hosts."""
    address: str = ""
    """The address of the coordinator for the workers; "": this machine's addresses that lead to the hosts."""


@dataclass(frozen=True)
class Stop:
    """The launcher got a signal to end the job."""

    status: int
    why: str


def make(
    arguments: argparse.Namespace,
    command: tuple[str, ...],
    hosts: Mapping[str, int],
    discovered: Mapping[str, int],
    exported: Mapping[str, str],
    way: str,
) -> Elastic:
    """Make the job from the arguments.

    :param hosts: those of -H or --hostfile, or none
    :param discovered: the script's first hosts
    :param exported: variables of workers on other hosts
    :param way: how to start agents there
    :raises LaunchError: the arguments contradict each other
    """
    script = arguments.host_discovery_script or ""
    if script and hosts:
        raise LaunchError("--host-discovery-script and -H or --hostfile: give one of them")
    if arguments.nodes:
        raise LaunchError("--nodes: set HPCCOLL_NODES for an elastic job, to a number that all its sizes allow")
    np = arguments.ranks or arguments.min_np or sum((hosts or discovered).values())
    chosen = dict(discovered if script else hosts or {"localhost": arguments.max_np or np})
    min_np, max_np = arguments.min_np or np, arguments.max_np or max(np, 10**6 if script else sum(chosen.values()))
    if not 1 <= min_np <= np <= max_np:
        raise LaunchError(f"--min-np {min_np}, -np {np}, --max-np {max_np}: needs 1 <= min <= np <= max")
    if not script and sum(chosen.values()) < np:
        option = "-np" if arguments.ranks else "--min-np"
        raise LaunchError(f"{option} {np}: the hosts take {sum(chosen.values())} ranks; raise the numbers after -H")
    cooldown = arguments.blacklist_cooldown_range
    limits = Limits(
        np,
        min_np,
        max_np,
        elastic_timeout=arguments.elastic_timeout,
        reset_limit=arguments.reset_limit,
        straggler_timeout=arguments.straggler_timeout,
        host_failures=1 if arguments.exclude_host_on_failure else arguments.host_failures,
        exclude_host_on_failure=arguments.exclude_host_on_failure,
        cooldown=(cooldown[0], cooldown[1]) if cooldown else None,
        discovers=bool(script),
    )
    output = os.path.abspath(arguments.output) if arguments.output else ""
    options = split_words("--launcher-options", arguments.launcher_options)
    slots, timeout = arguments.slots_per_host, arguments.timeout
    return Elastic(command, limits, chosen, script, slots, output, timeout, way, options, exported)


class Runner:
    """Runs one job."""

    def __init__(
        self, job: Elastic, environment: Mapping[str, str], discovery: Discovery | None, limit: float = float("inf")
    ) -> None:
        """Prepare the job.

        :param environment: that of all workers
        :param limit: the time (time.monotonic) at which the job is ended
        :raises LaunchError: HPCCOLL_PEER_TIMEOUT, or HPCCOLL_START_TIMEOUT, makes no sense
        """
        self._job, self._discovery = job, discovery
        self._events: queue.SimpleQueue[Event | Cut | CutHost | HostCame | Stop] = queue.SimpleQueue()
        others = [host for host in job.hosts if host not in THIS_MACHINE]
        addresses = [job.address] if job.address else addresses_towards(others)
        self._server = Server(addresses, self._events.put)
        defaults = {"HPCCOLL_PEER_TIMEOUT": PEER_TIMEOUT, "HOROVOD_ELASTIC": "1"}
        given = {**defaults, **job.exported, **environment}
        waits = ("HPCCOLL_PEER_TIMEOUT", "HPCCOLL_START_TIMEOUT")
        try:
            seconds = config.read({name: text for name, text in given.items() if name in waits}).peer_timeout
        except InvalidArgumentError as error:
            raise LaunchError(str(error)) from None
        self._membership = Membership(replace(job.limits, peer_timeout=seconds))
        secrets = {COORDINATOR: self._server.listener.variable, inherited.SECRET: new_secret()}
        self._agents: dict[str, AgentProcess] = {}
        """The agent of each host."""
        self._started = 0
        """Agents so far."""
        self._task: dict[str, Any] = {
            "command": job.command,
            "variables": {**defaults, **job.exported, **secrets},
            "output": job.output,
            "peer_timeout": seconds,
        }
        self._task_here = {**self._task, "variables": {**defaults, **environment, **secrets}}
        self._limit = min(limit, time.monotonic() + FOREVER)
        self._cut: dict[int, float] = {}
        self._farewell: int = signal.SIGTERM
        """The signal that ends the workers which are left at the end."""
        self._released: set[int] = set()
        """The workers that were told to end, before their program had come to its end."""

    def run(self) -> int:
        """Run the job.

        :returns: the exit status of `hpccoll run`
        """
        with self._server.listener, self._signals():
            try:
                ended = self._step(Discovered(self._job.hosts))
                if self._discovery:
                    self._discovery.begin()
                while ended is None:
                    ended = self._next()
                return ended
            finally:
                if self._discovery:
                    self._discovery.end()
                for agent in self._agents.values():
                    agent.ask_to_end(self._farewell)
                limit = time.monotonic() + LAST  # for all hosts together, even if several do not answer
                for agent in self._agents.values():
                    agent.end(max(0.0, limit - time.monotonic()))

    def discovered(self, hosts: Mapping[str, int]) -> None:
        """Take the current hosts, in any thread."""
        self._events.put(Discovered(hosts))

    def without_result(self, there: Container[int]) -> str:
        """Say which ranks of the last generation have ended without a result, though no one had released them.

        :param there: the workers that have a result
        :returns: a sentence; "": all ranks have one
        """
        members = enumerate(self._membership.members)
        missing = [rank for rank, worker in members if worker not in there and worker not in self._released]
        if not missing:
            return ""
        verb = "has" if len(missing) == 1 else "have"
        return f"{some_ranks(missing)} {verb} ended with status 0 before the function returned, and so without a result"

    # ---- events ---------------------------------------------------------------------------------------

    def _ended(self, worker: int, status: int, how: str) -> None:
        self._events.put(Gone(worker, status, how))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGINT and similar signals end the job; only the main thread handles them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _frame: object) -> None:
            self._events.put(Stop(128 + number, f"{signal.Signals(number).name} has ended the job"))

        before = {number: signal.signal(number, stop) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _next(self) -> int | None:
        """Take the next event, or notice that time has passed.

        :returns: the exit status, if the job has ended
        """
        event: Event | Cut | CutHost | HostCame | Stop = Tick(self._server.awaited())
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=TICK)
        now = time.monotonic()
        if now > self._limit:
            say(f"the job had not ended after {self._job.timeout:g} s (--timeout) and was ended")
            return TIMED_OUT
        for worker in [worker for worker, at in self._cut.items() if now - at > REAPING]:
            del self._cut[worker]
            self._kill(worker)  # it has lost its connection, but is alive
        if isinstance(event, Stop):
            say(event.why)
            self._farewell = event.status - 128
            return event.status
        if isinstance(event, Cut):
            self._cut[event.worker] = now
            return None
        if isinstance(event, CutHost):
            return self._lose_host(event)
        if isinstance(event, HostCame):
            return self._take_host(event)
        if isinstance(event, Gone):
            self._cut.pop(event.worker, None)
        return self._step(event)

    # ---- actions --------------------------------------------------------------------------------------

    def _step(self, event: Event) -> int | None:
        ended = None
        for action in self._membership.step(event, time.monotonic()):
            ended = self._carry_out(action)
        return ended

    def _carry_out(self, action: Action) -> int | None:
        match action:
            case Start(worker, host, slot):
                self._start(worker, host, slot)
            case Kill(worker):
                self._kill(worker)
            case Answer():
                self._server.answer(action)
            case Form():
                self._tell_agents(action.members)
                self._server.form(action)
            case Void(generation, why):
                self._server.void(generation, why)
            case Change(generation, members, adds_only):
                for member in members:
                    self._server.send(member, {"change": generation, "adds_only": adds_only})
            case Release(worker, why):
                self._released.add(worker)
                self._server.send(worker, {"release": why})
            case Say(text):
                say(text)
            case End(status, why):
                if why:
                    say(f"the job ends: {why}")
                return status
        return None

    def _take_host(self, event: HostCame) -> int | None:  # noqa: ARG002 - for subclasses
        """Handle a new connection of an agent; this class has started the agent, so nothing is to do."""
        return None

    def _lose_host(self, event: CutHost) -> int | None:
        """Handle the loss of all workers of a host; a new worker there gets a new agent."""
        agent = self._agents.get(event.host)
        if agent is None or agent.name != event.agent:
            return None  # its end and the end of its connection are both reported
        del self._agents[event.host]
        agent.ask_to_end(signal.SIGKILL)
        self._server.forget(event.agent)
        agent.end(0.0)
        return self._step(HostLost(event.host, f"host {event.host} {event.why}"))

    def _agent_of(self, host: str) -> AgentProcess:
        """Return the agent of a host; start it at the first call."""
        if host not in self._agents:
            self._started += 1
            here = host in THIS_MACHINE
            task, way = (self._task_here, HERE) if here else (self._task, self._job.way)
            task = {**task, "seconds": self._limit - time.monotonic()}
            self._agents[host] = AgentProcess(
                (host, self._started), task, way, self._job.way_options, self._server.order, self._agent_ended
            )
        return self._agents[host]

    def _agent_ended(self, agent: AgentName, why: str) -> None:
        self._events.put(CutHost(agent, why))

    def _tell_agents(self, members: tuple[int, ...]) -> None:
        """Tell each agent the members of the generation among its workers: they go on if the launcher dies.

        It returns when the messages have left this process, so that no worker becomes a member before that.
        """
        for host, agent in self._agents.items():
            here = [member for member in members if self._membership.workers[member].host == host]
            self._server.send(agent.name, {"members": here})
        self._server.flush(agent.name for agent in self._agents.values())

    def _kill(self, worker: int) -> None:
        if known := self._membership.workers.get(worker):
            self._agent_of(known.host).signal(worker, signal.SIGKILL)

    def _start(self, worker: int, host: str, slot: int) -> None:
        variables = {WORKER: str(worker), "HOROVOD_HOSTNAME": host, "HOROVOD_LOCAL_RANK": str(slot)}
        self._agent_of(host).start(worker, variables)


def run(
    arguments: argparse.Namespace,
    command: tuple[str, ...],
    hosts: Mapping[str, int],
    environment: Mapping[str, str],
    exported: Mapping[str, str],
    way: str = "ssh",
) -> int:
    """Run an elastic job.

    :param hosts: those of -H or --hostfile, or of the allocation, or none
    :param environment: that of the workers on this machine
    :param exported: variables of those on other hosts
    :returns: the exit status of `hpccoll run`
    :raises LaunchError: the job cannot be started as asked
    """
    discovery, script, seconds = None, arguments.host_discovery_script, arguments.timeout or FOREVER
    limit = time.monotonic() + seconds
    if script:
        try:
            discovery = Discovery(script, arguments.slots_per_host, lambda found: runner.discovered(found), seconds)
        except TooSlowError as error:
            if time.monotonic() < limit:
                raise
            say(f"{error} (--timeout)")
            return TIMED_OUT
    job = make(arguments, command, hosts, discovery.hosts if discovery else {}, exported, way)
    runner = Runner(job, environment, discovery, limit)
    return runner.run()
