# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and kills the processes of workers, for the agent of a host."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from hpccoll.detect.descendants import begun_with
from hpccoll.launch_protocol import COORDINATOR, WORKER
from hpccoll.tools.launch import agent_start, limits
from hpccoll.tools.launch.job import LaunchError

AgentName = tuple[str, int]
"""The host of an agent, and a number that no other one there has had: an agent that is given up may still connect."""
END = "end"
"""The order that ends an agent and its workers; its value is the signal."""
Ended = Callable[[int, int, str], None]
"""Takes a worker, its exit status, and how it ended in words."""
Halted = Callable[[int, int], None]
"""Takes a worker and its process number when that was stopped (state T), and the worker and 0 when it was continued."""
CHANGES = os.WEXITED | os.WSTOPPED | os.WCONTINUED
"""The changes of a process that waitid() reports."""
HALTS = (os.CLD_STOPPED, os.CLD_CONTINUED)
MARKS = (COORDINATOR, WORKER)
"""The variables that only the processes of one worker have with its values."""
REPORTS = 10.0
"""Seconds for the reports of ended workers, over a connection that may not answer."""


def kill_rest(session: int, marks: Mapping[str, str]) -> None:
    """Kill what a worker has left behind, which may hold the GPU memory or a port that the next one needs.

    :param session: its number, which is that of its session
    :param marks: its variables of MARKS, by which its processes in sessions of their own are found
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    for process in begun_with(marks) if len(marks) == len(MARKS) else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


class LocalAgent:
    """The workers that this process has started."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: str,
        ended: Ended,
        halted: Halted = lambda _worker, _process: None,
    ) -> None:
        """Prepare to start workers.

        :param command: the command of each worker
        :param environment: the whole environment of all workers
        :param output: the folder for files of each worker's output; "": all output is printed here
        :param ended: called in a thread when a process has ended
        :param halted: called in a thread when a process was stopped or continued
        """
        self._command, self._environment, self._output = command, environment, output
        self._ended, self._halted = ended, halted
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._watches: list[threading.Thread] = []

    def start(self, worker: int, variables: Mapping[str, str]) -> None:
        """Start a worker in a new session; it ends with this process at the latest."""
        folder = self._output and f"{self._output}/worker.{worker}"
        try:
            with limits.named():
                process = agent_start.start(self._command, {**self._environment, **variables}, folder)
        except (OSError, LaunchError) as error:
            self._ended(worker, 127, str(error))
            return
        self._processes[worker] = process
        marks = {name: text for name, text in {**self._environment, **variables}.items() if name in MARKS}
        watch = threading.Thread(target=self._watch, args=(worker, process, marks), daemon=True)
        self._watches.append(watch)
        watch.start()

    def signal(self, worker: int, number: int) -> None:
        """Send a signal to the processes of a worker."""
        process = self._processes.get(worker)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def living(self) -> set[int]:
        """Give the workers that have not ended."""
        return {worker for worker, process in list(self._processes.items()) if process.returncode is None}

    def signal_all(self, number: int) -> None:
        """Send a signal to the processes of all workers."""
        for worker in list(self._processes):
            self.signal(worker, number)

    def end_all(self, number: int, seconds: float) -> None:
        """Send all workers a signal to end, kill those that have not ended after some seconds, and report all ends."""
        self.signal_all(number)
        self.signal_all(signal.SIGCONT)
        for process in list(self._processes.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                continue
            seconds = 0.0
        for worker, process in list(self._processes.items()):
            self.signal(worker, signal.SIGKILL)
            process.wait()
        limit = time.monotonic() + REPORTS
        for watch in self._watches:  # each reports how its worker has ended
            watch.join(max(0.0, limit - time.monotonic()))

    def _watch(self, worker: int, process: subprocess.Popen[bytes], marks: Mapping[str, str]) -> None:
        with contextlib.suppress(ChildProcessError):  # another thread has waited for its end
            while (change := os.waitid(os.P_PID, process.pid, CHANGES | os.WNOWAIT)) and change.si_code in HALTS:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
                self._halted(worker, process.pid if change.si_code == os.CLD_STOPPED else 0)
        status = process.wait()
        kill_rest(process.pid, marks)
        how = f"killed by signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"exit status {status}"
        self._ended(worker, status, how)
