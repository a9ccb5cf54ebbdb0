# SPDX-License-Identifier: Apache-2.0
"""Replaces mpirun: keeps the store of a job, and starts an agent per host, over ssh on other machines."""

import argparse
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from hpccoll import inherited
from hpccoll.launch_protocol import STORE
from hpccoll.tools.launch import agent_start, limits
from hpccoll.tools.launch.agent_start import THIS_MACHINE
from hpccoll.tools.launch.direct import agent
from hpccoll.tools.launch.direct.places import variables_of_ranks
from hpccoll.tools.launch.direct.store import StoreServer
from hpccoll.tools.launch.job import Host, LaunchError, parse_hosts
from hpccoll.tools.launch.listener import addresses_towards
from hpccoll.tools.launch.processes import FORWARDED, say

AGENT = "hpccoll.tools.launch.direct.agent"
SSH_FAILED = 255
AGAIN = 1.0
"""Seconds in which a second interrupt is the same: timeout(1) sends a signal to a process, and to its group."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the arguments that plan.py has written."""
    parser = argparse.ArgumentParser(prog="hpccoll.tools.launch.direct.starter", allow_abbrev=False)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--export", action="append", default=[])
    parser.add_argument("--output", default="")
    parser.add_argument("--input", nargs=2, default=[os.devnull, "0"])
    parser.add_argument("--ssh-option", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def variables_of(hosts: Sequence[Host]) -> list[dict[str, dict[str, str]]]:
    """Return the variables with rank and node for the ranks of each host."""
    nodes = [node for node, host in enumerate(hosts) for _ in range(host.slots)]
    places = variables_of_ranks(nodes, secrets.token_hex(4))
    return [{str(rank): places[rank] for rank, on in enumerate(nodes) if on == node} for node in range(len(hosts))]


def command_for(host: Host, options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts the agent of a host. It has the agent's variables, which are no secret."""
    if host.name in THIS_MACHINE:
        return agent_start.agent(AGENT)
    return agent_start.by_ssh(host.name, AGENT, options, environment)


class Agents:
    """The agents of all hosts."""

    def __init__(self, arguments: argparse.Namespace, store: str) -> None:
        """Start them, and with them the ranks."""
        self._ended: queue.SimpleQueue[Host] = queue.SimpleQueue()
        self._agents: dict[Host, subprocess.Popen[str]] = {}
        environment = inherited.environment()
        variables = {**{name: environment[name] for name in arguments.export}, STORE: store}
        hosts = parse_hosts(arguments.hosts)
        for host, ranks in zip(hosts, variables_of(hosts), strict=True):
            task = {
                "command": arguments.command[1:],
                "folder": os.getcwd(),
                "variables": variables,
                "ranks": ranks,
                "output": arguments.output,
                "input": arguments.input,
            }
            self._start(host, command_for(host, arguments.ssh_option, environment), json.dumps(task))

    def _start(self, host: Host, command: list[str], task: str) -> None:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._agents[host] = process
        self._tell(process, task)
        threading.Thread(target=self._watch, args=(host, process), daemon=True).start()

    def _watch(self, host: Host, process: "subprocess.Popen[str]") -> None:
        process.wait()
        self._ended.put(host)

    def _tell(self, process: "subprocess.Popen[str]", line: str) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has ended; _watch() handles that

    def signal(self, number: int) -> None:
        """Send a signal to all ranks."""
        for process in self._agents.values():
            self._tell(process, str(number))

    def wait(self) -> int:
        """Wait for all agents. After the first failure the others have some seconds.

        :returns: the status of the first failed agent, or 0
        """
        left, status = set(self._agents), 0
        while left:
            try:
                host = self._ended.get(timeout=agent.GRACE if status else None)
            except queue.Empty:
                break
            left.discard(host)
            ended = self._agents[host].returncode
            if ended and not status:
                status = agent.as_shell(ended)
                if host.name not in THIS_MACHINE and ended == SSH_FAILED:
                    say(f"host {host.name}: no connection by ssh, or it was lost: does `ssh {host.name} true` work?")
        for host in left:
            process = self._agents[host]
            if process.stdin is not None:
                process.stdin.close()  # the agent kills its ranks
        for host in left:
            try:
                self._agents[host].wait(agent.GRACE)
            except subprocess.TimeoutExpired:
                self._agents[host].kill()
        return status


def main() -> int:
    """Run the job.

    :returns: the status of the first rank that failed, or 0; 2 if the ranks cannot be started
    """
    try:
        with limits.named():
            return execute(parse(sys.argv[1:]))
    except LaunchError as error:
        say(str(error))
        return 2


def execute(arguments: argparse.Namespace) -> int:
    """Start the ranks and wait for them.

    :returns: the status of the first rank that failed, or 0
    """
    others = [host.name for host in parse_hosts(arguments.hosts) if host.name not in THIS_MACHINE]
    server = StoreServer(addresses_towards(others))
    with server.listener as listener:
        agents = Agents(arguments, listener.variable)
        interrupted, launcher = float("inf"), os.getppid()

        def forward(number: int, _frame: object) -> None:
            nonlocal interrupted
            if number == signal.SIGINT:
                now = time.monotonic()
                if now - interrupted > AGAIN:
                    say("interrupted again: the ranks are killed")
                    number = signal.SIGKILL
                interrupted = min(interrupted, now)
            agents.signal(number)
            if os.getppid() != launcher:  # `hpccoll run` was killed, and this is the signal of its end
                threading.Timer(agent.GRACE, agents.signal, (signal.SIGKILL,)).start()

        for number in FORWARDED:
            signal.signal(number, forward)
        return agents.wait()


if __name__ == "__main__":
    sys.exit(main())
