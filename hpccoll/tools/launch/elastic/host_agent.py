# SPDX-License-Identifier: Apache-2.0
"""The agent of a host: starts, watches and kills the workers there, by order of the coordinator.

Standard input is the task, one line, with the variables of the workers, so that no argument has a secret. All else uses
the agent's connection to the coordinator. If that ends because the launcher's process has ended, the members of the
generation go on, until all of them have ended or one has failed. If the connection is lost, or the launcher has
excluded the host, the agent kills its workers: the other ranks go on without them.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import threading
import time
from typing import Any, NoReturn

from hpccoll import channel, inherited
from hpccoll.launch_protocol import COORDINATOR, LONGEST
from hpccoll.tools.launch import agent_task, limits
from hpccoll.tools.launch.agent_task import say
from hpccoll.tools.launch.elastic.agents import END, LocalAgent
from hpccoll.tools.launch.job import LaunchError
from hpccoll.tools.launch.listener import SILENCE

GRACE = 5.0
"""Seconds that workers have to end by themselves when one has failed without a launcher, and again after a signal."""

LOOK = 1.0
"""Seconds between two looks at workers that are stopped, without a launcher."""


class EndedBySignalError(Exception):
    """A signal has told this process to end."""


class HostAgent:
    """The workers of this host."""

    def __init__(self, task: dict[str, Any]) -> None:
        """Connect to the coordinator.

        :param task: command, variables of all workers, folder of output files or "", the host's name, the agent's
            number, how many seconds the job may still take, and HPCCOLL_PEER_TIMEOUT
        """
        self._limit = time.monotonic() + task["seconds"]
        secret, addresses = channel.parse(task["variables"][COORDINATOR])
        try:
            self._channel = channel.connect(addresses, secret)
        except OSError as error:
            agent_task.give_up(f"the launcher of the job cannot be reached: {error}")
        self._channel.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in SILENCE.items():
            self._channel.connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._lock = threading.Lock()
        self._members: set[int] = set()
        """The workers that are in the present generation."""
        self._ends: queue.SimpleQueue[tuple[int, int, str]] = queue.SimpleQueue()
        """The workers that have ended: the number, the exit status, and how it ended in words."""
        environment = {**inherited.environment(), **task["variables"]}
        self._peer_timeout = task["peer_timeout"]
        self._stopped: set[int] = set()
        """The workers whose processes are stopped (state T)."""
        self._agent = LocalAgent(task["command"], environment, task["output"], self._ended, self._halted)
        self._tell({"agent": task["host"], "number": task["number"]})

    def _tell(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._channel.send(json.dumps(message).encode())

    def _ended(self, worker: int, status: int, how: str) -> None:
        self._stopped.discard(worker)
        self._ends.put((worker, status, how))
        with contextlib.suppress(OSError):  # obey() notices it
            self._tell({"ended": worker, "status": status, "how": how})

    def _halted(self, worker: int, process: int) -> None:
        (self._stopped.add if process else self._stopped.discard)(worker)
        with contextlib.suppress(OSError):
            self._tell({"halted": worker, "process": process})

    def run(self) -> int:
        """Follow the coordinator's orders, and go on without it if its process has ended.

        :returns: the exit status
        """
        try:
            try:
                return self._obey()
            except (OSError, ValueError, channel.ChannelError) as error:
                if self._channel.other_process_has_ended(error):
                    return self._go_on_alone()
                say(f"{error}: its ranks are ended")
                self._agent.end_all(signal.SIGKILL, GRACE)
                return 1
        except EndedBySignalError as asked:
            self._agent.end_all(asked.args[0], GRACE)
            return 128 + int(asked.args[0])

    def _obey(self) -> int:
        while END not in (order := json.loads(self._channel.receive(LONGEST))):
            if "start" in order:
                self._agent.start(int(order["start"]), order["variables"])
            elif "signal" in order:
                self._agent.signal(int(order["signal"]), int(order["number"]))
            elif "members" in order:
                self._members = set(order["members"])
        self._agent.end_all(int(order[END]), GRACE)
        return 0

    def _go_on_alone(self) -> int:
        """Let the members run to their end; no worker can join any more, and no member may fail."""
        for worker in self._agent.living() - self._members:
            say(f"worker {worker} had not come in when the launcher of the job ended, and is killed")
            self._agent.signal(worker, signal.SIGKILL)
        left, failed, limit = set(self._members), not self._members, self._limit
        stopped: dict[int, float] = {}
        while left:
            try:
                worker, status, how = self._ends.get(timeout=max(0.0, min(LOOK, limit - time.monotonic())))
            except queue.Empty:
                stopped = self._kill_stopped(stopped)
                if time.monotonic() < limit:
                    continue
                if not failed:
                    say("the job has not ended by its limit (--timeout): its ranks end")
                failed = True
                break
            if status and worker in left and not failed:
                failed, limit = True, time.monotonic() + GRACE
                say(f"worker {worker} has ended ({how}), and the launcher of the job is gone: its ranks end")
            left.discard(worker)
        self._agent.end_all(signal.SIGTERM, GRACE)
        return int(failed)

    def _kill_stopped(self, seconds: dict[int, float]) -> dict[int, float]:
        """Kill members that are stopped for so long that the others count them as lost, because the launcher is gone.

        It counts its own looks, not the time: if the whole host was suspended, its ranks get that time to go on.

        :param seconds: what the last look returned
        :returns: the workers that are stopped, and for how many seconds of looks
        """
        seconds = {worker: seconds.get(worker, 0.0) + LOOK for worker in self._stopped.copy()}
        for worker in [worker for worker, stopped in seconds.items() if 0 < self._peer_timeout < stopped]:
            say(f"worker {worker} is stopped (state T), and the launcher of the job is gone: it is killed")
            self._agent.signal(worker, signal.SIGKILL)
            self._stopped.discard(worker)
        return seconds


def _stop(number: int, _frame: object) -> NoReturn:
    raise EndedBySignalError(number)


def main() -> int:
    """Read the task, and follow the coordinator's orders.

    :returns: the exit status
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        with limits.named():
            return HostAgent(agent_task.take()).run()
    except LaunchError as error:  # its workers end with this process
        say(str(error))
        return 1


if __name__ == "__main__":
    os._exit(main())  # a regular exit would wait for the threads that watch processes
