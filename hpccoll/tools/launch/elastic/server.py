# SPDX-License-Identifier: Apache-2.0
"""The coordinator's connections to the workers: turns their messages into events, and answers their exchanges.

Each connection has a thread for reading and another one for writing, so a stopped worker delays no other.
"""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hpccoll.channel import Channel, ChannelError
from hpccoll.launch_protocol import LONGEST
from hpccoll.tools.launch.elastic.agents import AgentName
from hpccoll.tools.launch.elastic.events import Answer, Came, Early, Event, Form, Gone, Halted, Leaving
from hpccoll.tools.launch.listener import Listener

FLUSH = 1.0
"""Seconds: more than any agent needs that reads, or has read all but some kilobytes."""


@dataclass(frozen=True)
class Cut:
    """The connection of a worker has ended, usually because its process has ended."""

    worker: int


@dataclass(frozen=True)
class CutHost:
    """The agent of a host has ended, or does not answer; it kills its workers."""

    agent: AgentName
    why: str
    """The rest of a sentence that begins with the name of the host."""

    @property
    def host(self) -> str:
        """The host of the agent."""
        return self.agent[0]


@dataclass(frozen=True)
class HostCame:
    """The agent of a host has connected."""

    host: str


class _Connection:
    """The messages to one worker, in order."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._outbox: queue.SimpleQueue[bytes | threading.Event | None] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="hpccoll writer", daemon=True).start()

    def send(self, message: bytes | None) -> None:
        self._outbox.put(message)

    def mark(self) -> threading.Event:
        """Return an event that is set when all that was given to send() is sent."""
        sent = threading.Event()
        self._outbox.put(sent)
        return sent

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the reader notices it
            while (message := self._outbox.get()) is not None:
                if isinstance(message, threading.Event):
                    message.set()
                else:
                    self._channel.send(message)


class _Exchanges:
    """The values of the members of one generation in its exchanges."""

    def __init__(self, generation: int, members: tuple[int, ...]) -> None:
        self.generation, self.members = generation, members
        self.values: dict[int, dict[int, Any]] = {}
        self.why = ""
        """Why it has ended."""


class Server:
    """All connections."""

    def __init__(self, addresses: Iterable[str], tell: Callable[[Event | Cut | CutHost | HostCame], None]) -> None:
        """Begin to listen; the caller enters `listener`.

        :param addresses: addresses of this machine that the workers can reach
        :param tell: takes an event, in any thread
        """
        self._tell = tell
        self._connections: dict[int | AgentName, _Connection] = {}
        """The connections of workers, by their numbers, and of agents."""
        self._orders: dict[AgentName, list[dict[str, Any]]] = {}
        """For agents that have not connected yet."""
        self._exchanges = _Exchanges(0, ())
        self._lock = threading.Lock()
        self.listener = Listener(addresses, self._serve)

    # ---- to the workers -------------------------------------------------------------------------------

    def order(self, agent: AgentName, message: dict[str, Any]) -> None:
        """Tell an agent what to do, as soon as it has connected."""
        with self._lock:
            if agent in self._connections:
                self.send(agent, message)
            else:
                self._orders.setdefault(agent, []).append(message)

    def forget(self, agent: AgentName) -> None:
        """Forget an agent, which has ended."""
        with self._lock:
            self._orders.pop(agent, None)
            if connection := self._connections.pop(agent, None):
                connection.send(None)

    def send(self, worker: int | AgentName, message: dict[str, Any]) -> None:
        """Send a message; it is dropped if the worker has no connection."""
        if connection := self._connections.get(worker):
            connection.send(json.dumps(message).encode())

    def flush(self, agents: Iterable[AgentName]) -> None:
        """Wait until what was sent to agents has left this process, at most FLUSH seconds."""
        marks = [connection.mark() for agent in agents if (connection := self._connections.get(agent))]
        end = time.monotonic() + FLUSH
        for mark in marks:
            mark.wait(max(0.0, end - time.monotonic()))

    def answer(self, answer: Answer) -> None:
        """Tell a worker that is early where its place will be."""
        self.send(answer.worker, {"place": answer.place})

    def form(self, form: Form) -> None:
        """Tell the members of a new generation their ranks."""
        with self._lock:
            self._exchanges = _Exchanges(form.generation, form.members)
        for rank, worker in enumerate(form.members):
            self.send(worker, {"generation": form.generation, "rank": rank, "size": len(form.members)})

    def void(self, generation: int, why: str) -> None:
        """End the exchanges of a generation."""
        with self._lock:
            if generation == self._exchanges.generation:
                self._exchanges.why = why
                for worker in {worker for given in self._exchanges.values.values() for worker in given}:
                    self.send(worker, {"void": generation, "why": why})

    def awaited(self) -> frozenset[int]:
        """Give the workers for which others wait in an exchange of the generation."""
        with self._lock:
            exchanges = self._exchanges
            lacking = [frozenset(exchanges.members).difference(given) for given in exchanges.values.values()]
            return frozenset().union(*lacking) if not exchanges.why else frozenset()

    # ---- from the workers -----------------------------------------------------------------------------

    def _serve(self, channel: Channel) -> None:
        hello = json.loads(channel.receive())
        if "agent" in hello:
            self._serve_agent((str(hello["agent"]), int(hello["number"])), channel)
            return
        worker, connection = int(hello["worker"]), _Connection(channel)
        with self._lock:
            if worker in self._connections:
                raise ChannelError(f"worker {worker} has a connection")
            self._connections[worker] = connection
        connection.send(b"{}")
        try:
            while True:
                self._take(worker, json.loads(channel.receive(LONGEST)))
        except (OSError, ValueError, KeyError, ChannelError):
            connection.send(None)
            self._tell(Cut(worker))

    def _serve_agent(self, agent: AgentName, channel: Channel) -> None:
        """Pass orders on to the agent of a host, and its news to the coordinator."""
        connection = _Connection(channel)
        with self._lock:
            if agent in self._connections:
                raise ChannelError(f"agent {agent} has a connection")
            self._connections[agent] = connection
            for order in self._orders.pop(agent, []):
                connection.send(json.dumps(order).encode())
        self._tell(HostCame(agent[0]))
        try:
            while True:
                news = json.loads(channel.receive())
                if "halted" in news:
                    self._tell(Halted(int(news["halted"]), int(news["process"])))
                else:
                    self._tell(Gone(int(news["ended"]), int(news["status"]), str(news["how"])))
        except (OSError, ValueError, KeyError, ChannelError) as error:
            self._tell(CutHost(agent, f"has lost its agent ({error})"))

    def _take(self, worker: int, message: dict[str, Any]) -> None:
        if "gather" in message:
            self._gather(worker, int(message["generation"]), int(message["gather"]), message["value"])
        elif "early" in message:
            self._tell(Early(worker))
        elif "come" in message:
            lost = {int(rank): str(why) for rank, why in message["lost"].items()}
            self._tell(Came(worker, int(message["come"]), lost, bool(message["has_state"])))
        elif "leave" in message:
            self._tell(Leaving(worker))

    def _gather(self, worker: int, generation: int, number: int, value: Any) -> None:
        """Take a value; the last one of an exchange answers it."""
        with self._lock:
            exchanges = self._exchanges
            if generation != exchanges.generation or exchanges.why:
                why = exchanges.why if generation == exchanges.generation else "there is a later one"
                self.send(worker, {"void": generation, "why": why})
                return
            given = exchanges.values.setdefault(number, {})
            given[worker] = value
            if len(given) < len(exchanges.members):
                return
            values = [given[member] for member in exchanges.members]
            del exchanges.values[number]
        answer = json.dumps({"of": generation, "gathered": number, "values": values}).encode()
        for member in exchanges.members:
            if connection := self._connections.get(member):
                connection.send(answer)
