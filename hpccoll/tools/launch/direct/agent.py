# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of one host, forwards signals, and leaves no process behind.

The first line of standard input is the task, with the variables of the ranks, so that no argument has a secret. Each
further line is a signal to forward. When standard input ends, because the starter or the connection to it is gone, the
ranks are killed.
"""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from hpccoll import inherited
from hpccoll.detect.descendants import descendants
from hpccoll.tools.kin import adopt_orphans
from hpccoll.tools.launch import agent_task, limits
from hpccoll.tools.launch.agent_start import start
from hpccoll.tools.launch.job import LaunchError
from hpccoll.tools.launch.processes import kill_descendants, reap_adopted, say

GRACE = 5.0
"""Seconds that the ranks have to end by themselves when one of them has failed, and again after SIGTERM, and that their
processes have after the ranks' regular end."""
POLL = 0.02


class Agent:
    """The ranks of this host."""

    def __init__(self, task: dict[str, Any]) -> None:
        """Start the ranks.

        :param task: the command; the variables of all ranks, and those of each, by its number; the folder of output
            files or ""; the file that rank 0 reads, and where it begins
        """
        self._ranks: dict[int, subprocess.Popen[bytes]] = {}
        for number, variables in task["ranks"].items():
            environment = {**inherited.environment(), **task["variables"], **variables}
            folder = task["output"] and f"{task['output']}/rank.{number}"
            try:
                read = task["input"] if number == "0" else [os.devnull, "0"]
                with limits.named():
                    self._ranks[int(number)] = start(task["command"], environment, folder, read)
            except (OSError, LaunchError) as error:
                say(f"rank {number} (host {platform.node()}) cannot be started: {error}")
                self.signal(signal.SIGKILL)
                raise SystemExit(127) from None

    def signal(self, number: int) -> None:
        """Send a signal to the living ranks and to their processes."""
        for rank in self._ranks.values():
            with contextlib.suppress(ProcessLookupError):
                if rank.returncode is None:
                    os.killpg(rank.pid, number)

    def kill(self) -> None:
        """End this process, and the ranks with it, at once."""
        self.signal(signal.SIGKILL)
        for process in descendants(os.getpid()):  # those in sessions of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os._exit(1)

    def wait(self) -> int:
        """Wait for all ranks. After the first failure the others have some seconds.

        :returns: the status of the first failed rank, or 0
        """
        left, status, limit, asked = dict(self._ranks), 0, float("inf"), False
        while left:
            ended = [(number, rank) for number, rank in left.items() if rank.poll() is not None]
            ended.sort(key=lambda one: one[1].returncode >= 0)  # a killed rank first: others may have ended for it
            for number, rank in ended:
                del left[number]
                if rank.returncode and not status:
                    say(f"rank {number} (host {platform.node()}, pid {rank.pid}) {how(rank.returncode)}")
                    status, limit = as_shell(rank.returncode), time.monotonic() + GRACE
            if left and time.monotonic() > limit:
                self.signal(signal.SIGKILL if asked else signal.SIGTERM)
                asked, limit = True, time.monotonic() + GRACE
            reap_adopted({rank.pid for rank in left.values()})
            time.sleep(POLL)
        return status

    def obey(self) -> None:
        """Read standard input until it ends."""
        for line in sys.stdin:
            with contextlib.suppress(ValueError):
                self.signal(int(line))
        self.kill()


def as_shell(status: int) -> int:
    """Return the exit status of a process as a shell would give it."""
    return status if status >= 0 else 128 - status


def how(status: int) -> str:
    """Describe how a process has ended."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def main() -> int:
    """Read the task, start the ranks, wait for them, and end the processes that they have left behind."""
    adopt_orphans()
    agent = Agent(agent_task.take())
    try:
        with limits.named():
            threading.Thread(target=agent.obey, daemon=True).start()
    except LaunchError as error:
        say(str(error))
        agent.kill()
    status = agent.wait()
    if left_behind := kill_descendants(0.0 if status else GRACE):
        say(f"killed {left_behind} processes that outlived the ranks (host {platform.node()})")
    return status


if __name__ == "__main__":
    os._exit(main())  # a regular exit would wait for the thread that reads standard input
