# SPDX-License-Identifier: Apache-2.0
"""The launcher's side of the agent of a host, a process: here, or on another host by ssh, or by srun inside of Slurm.

Its ranks are its children and not the launcher's, so they outlive the launcher.
"""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpccoll.tools.launch import agent_start
from hpccoll.tools.launch.elastic.agents import END, AgentName

AGENT = "hpccoll.tools.launch.elastic.host_agent"
HERE = "this machine"
WAYS = {
    HERE: lambda _host, module, _options, _variables: agent_start.agent(module),
    "ssh": agent_start.by_ssh,
    "srun": agent_start.by_srun,
}
Orders = Callable[[AgentName, dict[str, Any]], None]
"""Sends an order to an agent; the order waits until the agent has connected."""


class AgentProcess:
    """An agent, of which a host may have several, one after the other."""

    def __init__(
        self,
        name: AgentName,
        task: Mapping[str, Any],
        way: str,
        options: Sequence[str],
        orders: Orders,
        ended: Callable[[AgentName, str], None],
    ) -> None:
        """Start the agent.

        :param task: see HostAgent
        :param way: one of WAYS
        :param options: of ssh or srun
        :param ended: called in a thread, with the name and the reason, when the agent has ended
        """
        self.name, self._way, self._order, self._ended = name, way, orders, ended
        host, number = name
        command = WAYS[way](host, AGENT, options, task["variables"])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            json.dump({**task, "host": host, "number": number, "folder": os.getcwd()}, stdin)
            stdin.write("\n")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        status = self._process.wait()
        self._ended(self.name, f"has lost its agent ({self._way}: exit status {status})")

    def start(self, worker: int, variables: Mapping[str, str]) -> None:
        """See LocalAgent."""
        self._order(self.name, {"start": worker, "variables": dict(variables)})

    def signal(self, worker: int, number: int) -> None:
        """See LocalAgent."""
        self._order(self.name, {"signal": worker, "number": number})

    def ask_to_end(self, number: int) -> None:
        """Let the agent send its workers a signal, kill the remaining ones, and end; do not wait for it."""
        self._order(self.name, {END: number})

    def end(self, seconds: float) -> None:
        """Wait at most `seconds` for the agent's requested end, and end the connection to it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._process.kill()
