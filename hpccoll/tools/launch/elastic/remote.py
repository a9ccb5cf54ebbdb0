# SPDX-License-Identifier: Apache-2.0
"""The launcher's side of an agent on another host, which it starts by ssh, or by srun inside of Slurm."""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpccoll.tools.launch import agent_start

AGENT = "hpccoll.tools.launch.elastic.host_agent"
WAYS = {"ssh": agent_start.by_ssh, "srun": agent_start.by_srun}
Orders = Callable[[str, dict[str, Any]], None]
"""Takes a host and what its agent is to do; orders wait until it has connected."""


class RemoteAgent:
    """An agent on another host; see LocalAgent."""

    def __init__(
        self,
        host: str,
        task: Mapping[str, Any],
        way: str,
        options: Sequence[str],
        orders: Orders,
        ended: Callable[[str, str], None],
    ) -> None:
        """Start it.

        :param task: see HostAgent
        :param way: one of WAYS
        :param options: of ssh or srun
        :param ended: called in a thread, with the host and the reason, when the agent has ended
        """
        self.host, self._way, self._order, self._ended = host, way, orders, ended
        command = WAYS[way](host, AGENT, options, task["variables"])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps({**task, "host": host, "folder": os.getcwd()}) + "\n")
            self._process.stdin.flush()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        status = self._process.wait()
        self._ended(self.host, f"the agent of host {self.host} has ended ({self._way}: exit status {status})")

    def start(self, worker: int, variables: Mapping[str, str]) -> None:
        """See LocalAgent."""
        self._order(self.host, {"start": worker, "variables": dict(variables)})

    def signal(self, worker: int, number: int) -> None:
        """See LocalAgent."""
        self._order(self.host, {"signal": worker, "number": number})

    def ask_to_end(self) -> None:
        """Let the agent kill its workers and end; it is not waited for."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self, seconds: float) -> None:
        """Wait so long for the end of the agent, which was asked for, and end the connection to it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
