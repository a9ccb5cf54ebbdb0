# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of an elastic job: `hpccoll run --min-np ...` chooses the members, and relays their values.

A process keeps one authenticated connection to its launcher (hpccoll.channel). It reports over it that it is ready,
and receives its generation, its rank and the number of ranks. In the generation the launcher collects the values of
each exchange; if a rank is lost meanwhile, the launcher notifies the others at once. A World sends no messages over
this connection while it runs collectives.
"""

import contextlib
import json
import os
import platform
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from hpccoll import _core, channel, errors
from hpccoll.launch_protocol import COORDINATOR, LONGEST, WORKER, Place
from hpccoll.rendezvous import codec
from hpccoll.rendezvous.patience import no_thread
from hpccoll.rendezvous.process_connection import ProcessConnection
from hpccoll.rendezvous.protocol import ByAllgather
from hpccoll.text import say, some_ranks

__all__ = ["CoordinatedRendezvous", "Coordinator", "of_process"]

T = TypeVar("T")
REPORT_EVERY = 10.0


class Coordinator:
    """The connection of this process to the coordinator of its job."""

    def __init__(self, text: str, worker: int, seconds: float = channel.START) -> None:
        """Connect.

        :param text: the variable COORDINATOR
        :param worker: the variable WORKER
        :param seconds: for how long it tries
        :raises StartError: the coordinator cannot be reached
        """
        self.worker, self.generation, self.rank = worker, 0, -1
        self.lost: dict[int, str] = {}
        """Ranks of the last generation that this process has lost, with reasons; come() reports them."""
        self.comes = False
        """Whether run() was called: from then on this process is a rank of the job."""
        self.has_state = False
        """Whether this process has a commit; come() also reports it."""
        self.changing = 0
        """The generation that is about to change; 0: none."""
        self.on_change: Callable[[bool], None] = lambda _adds_only: None
        """Called in another thread when the generation is about to change."""
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cut = ""
        try:
            secret, addresses = channel.parse(text)
            self._channel = channel.connect(addresses, secret, seconds)
            self._greet()
        except (OSError, ValueError, channel.ChannelError) as error:
            raise errors.StartError(f"the coordinator of the job cannot be reached: {error}") from None
        for work in (self._read, self._write):
            try:
                threading.Thread(target=work, name="hpccoll coordinator", daemon=True).start()
            except RuntimeError as error:
                self._channel.close()
                raise errors.StartError(no_thread(error)) from None

    def _greet(self) -> None:
        """Send the identity of this process, and read the answer; after it the connection may be silent for long."""
        hello = {"worker": self.worker, "host": platform.node(), "pid": os.getpid()}
        try:
            self._channel.send(json.dumps(hello).encode())
            self._channel.receive()
        except BaseException:
            self._channel.close()
            raise

    # ---- messages to the coordinator ----------------------------------------------------------------------

    def ask(self) -> Place | None:
        """Ask where this process will be, for init() before run().

        :returns: None if it is to come: it has been a rank, has called run(), or there is no generation yet
        :raises StartError: the coordinator is gone
        :raises SystemExit: the job does not need this process any more
        """
        if self.comes or self.generation:
            return None
        self.say({"early": True})
        found = self._answer("place")["place"]
        return Place(*found) if found else None

    def come(self) -> dict[str, Any]:
        """Report that this process is ready, and wait for the next generation.

        :returns: its generation, this process's rank and the number of ranks
        :raises StartError: the coordinator is gone
        :raises SystemExit: the job does not need this process any more
        """
        lost = {str(rank): why for rank, why in self.lost.items()}
        self.say({"come": self.generation, "lost": lost, "has_state": self.has_state})
        self.lost, self.rank = {}, -1
        news = self._answer("generation")
        self.generation, self.rank = int(news["generation"]), int(news["rank"])
        return news

    def gather(self, number: int, value: Any, waits: Callable[[], None]) -> list[Any]:
        """Exchange a value in the present generation.

        :param waits: called repeatedly while this waits
        :raises MembersChangedError: a rank was lost meanwhile
        """
        self.say({"gather": number, "generation": self.generation, "value": value})
        while True:
            try:
                news = self._next(1.0)
            except queue.Empty:
                waits()
                continue
            if news.get("void") == self.generation:
                raise errors.MembersChangedError(f"generation {self.generation} has ended: {news['why']}")
            if news.get("of") == self.generation and news.get("gathered") == number:
                return list(news["values"])

    def leave(self) -> bool:
        """Ask to leave the job; this starts a change of the members. A signal handler may call this.

        :returns: whether the coordinator is still connected
        """
        self.say({"leave": True})
        return not self._cut

    def say(self, message: dict[str, Any]) -> None:
        """Send a message; it may be lost if the coordinator is gone."""
        self._outbox.put(message)

    def tell(self, text: str) -> None:
        """Print a line about this process, if the coordinator is still connected."""
        say(f"hpccoll: worker {self.worker}: {text}")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    # ---- messages from the coordinator -------------------------------------------------------------------

    def _answer(self, key: str) -> dict[str, Any]:
        """Wait for a message with this key."""
        while True:
            news = self._next()
            if "release" in news:
                self.tell(f"ends: {news['release']}")
                raise SystemExit(0)
            if key in news:
                return news

    def _next(self, seconds: float | None = None) -> dict[str, Any]:
        if self._cut:
            self._is_gone()
        news = self._inbox.get(timeout=seconds)
        if "cut" in news:
            self._is_gone()
        return news

    def _is_gone(self) -> NoReturn:
        raise errors.StartError(
            f"the launcher of the job is gone ({self._cut}), so its ranks cannot change: see why `hpccoll run` ended"
        )

    def _read(self) -> None:
        try:
            while True:
                news = json.loads(self._channel.receive(LONGEST))
                if "change" in news:
                    self.changing = int(news["change"])
                    self.on_change(bool(news["adds_only"]))
                else:
                    self._inbox.put(news)
        except (OSError, ValueError, channel.ChannelError) as error:
            self._cut = str(error) or type(error).__name__
            self._inbox.put({"cut": True})
            if self.rank == 0 and self._channel.other_process_has_ended(error):
                self.tell("the launcher of the job is gone: training goes on, and the next change of the ranks ends it")
            self._channel.close()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the reader thread reports it
            while True:
                self._channel.send(json.dumps(self._outbox.get()).encode())


class CoordinatedRendezvous(ByAllgather):
    """See Rendezvous: the ranks of one generation of an elastic job."""

    one_process = False

    def __init__(self, coordinator: Coordinator, timeout: float) -> None:
        """Wait until this process is in a generation.

        :param timeout: seconds for each exchange
        :raises StartError: the coordinator is gone
        """
        self.coordinator, self.timeout = coordinator, timeout
        place = coordinator.come()
        self.rank, self.size = int(place["rank"]), int(place["size"])
        self.generation = coordinator.generation
        self.exchanges = 0

    def allgather(self, value: T) -> list[T]:
        """See Rendezvous. The coordinator collects the values, and notifies the ranks if one is lost meanwhile.

        :raises MembersChangedError: a rank was lost, or has left this generation
        """
        codec.encode(value)  # raises TypeError for a value that JSON would change
        number, self.exchanges = self.exchanges, self.exchanges + 1
        began = reported = time.monotonic()

        def waits() -> None:
            nonlocal reported
            now = time.monotonic()
            if now - began > self.timeout:
                raise errors.StartError(
                    f"the World was not made: not all ranks have come to step {number} of the start within "
                    f"{self.timeout:g} s (HPCCOLL_START_TIMEOUT)"
                )
            if self.rank == 0 and now - reported > REPORT_EVERY:
                reported = now
                others = some_ranks(range(self.size))
                say(f"hpccoll: start: waiting for some of {others}")

        return self.coordinator.gather(number, value, waits)

    def machine(self) -> str:
        """See Rendezvous."""
        return _core.machine_name()

    def describe(self) -> str:
        """See Rendezvous: the generation."""
        return f"the ranks are generation {self.generation} of an elastic job"


of_process = ProcessConnection(
    COORDINATOR,
    lambda env: Coordinator(
        env[COORDINATOR], int(env.get(WORKER, "-1")), float(env.get("HPCCOLL_START_TIMEOUT", channel.START))
    ),
)
"""`of_process(env)`: the connection of this process; None if the job is not elastic."""
