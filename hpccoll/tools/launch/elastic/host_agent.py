# SPDX-License-Identifier: Apache-2.0
"""The agent of another host: starts, watches and kills the workers there, as the coordinator tells it.

The first line of standard input is the task, with the variables of the workers: secrets are in no argument. The rest
goes over the agent's own connection to the coordinator. When that ends, or standard input does, the workers are killed:
a host that is cut off does not go on by itself.
"""

import json
import os
import platform
import signal
import socket
import sys
import threading
from typing import Any

from hpccoll import channel, config
from hpccoll.rendezvous.coordinator import COORDINATOR
from hpccoll.tools.launch.elastic.agents import LocalAgent
from hpccoll.tools.launch.listener import SILENCE


class HostAgent:
    """The workers of this host."""

    def __init__(self, task: dict[str, Any]) -> None:
        """Connect to the coordinator.

        :param task: command, folder, variables of all workers, folder of output files or "", the host's name
        """
        os.chdir(task["folder"])
        secret, addresses = channel.parse(task["variables"][COORDINATOR])
        self._channel = channel.connect(addresses, secret)
        self._channel.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in SILENCE.items():
            self._channel.connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._lock = threading.Lock()
        environment = {**config.environment(), **task["variables"]}
        self._agent = LocalAgent(task["command"], environment, task["output"], self._ended)
        self._say({"agent": task["host"]})

    def _say(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._channel.send(json.dumps(message).encode())

    def _ended(self, worker: int, status: int, how: str) -> None:
        try:
            self._say({"ended": worker, "status": status, "how": f"{how} (host {platform.node()})"})
        except OSError:
            self.kill()

    def obey(self) -> None:
        """Do as the coordinator says, until the connection ends."""
        while True:
            order = json.loads(self._channel.receive())
            if "start" in order:
                self._agent.start(int(order["start"]), order["variables"])
            elif "signal" in order:
                self._agent.signal(int(order["signal"]), int(order["number"]))

    def kill(self) -> None:
        """Kill the workers, and end this process."""
        self._agent.signal_all(signal.SIGKILL)
        os._exit(1)

    def watch(self) -> None:
        """Wait until standard input ends."""
        while sys.stdin.readline():
            pass
        self.kill()


def main() -> None:
    """Read the task, and do what the coordinator says."""
    agent = HostAgent(json.loads(sys.stdin.readline()))
    threading.Thread(target=agent.watch, daemon=True).start()
    try:
        agent.obey()
    except (OSError, ValueError, channel.ChannelError) as error:
        print(f"hpccoll run: agent of {platform.node()}: {error}: its ranks are ended", file=sys.stderr, flush=True)
    agent.kill()


if __name__ == "__main__":
    main()
