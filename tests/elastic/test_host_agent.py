# SPDX-License-Identifier: Apache-2.0
"""The agent of a host, as a process, under a coordinator that orders, gives it up, or is gone."""

import contextlib
import os
import queue
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpccoll.detect.descendants import state_and_parent
from hpccoll.launch_protocol import COORDINATOR, WORKER
from hpccoll.tools.launch.elastic.agent_process import HERE, AgentProcess
from hpccoll.tools.launch.elastic.agents import LocalAgent
from hpccoll.tools.launch.elastic.events import Gone, Halted
from hpccoll.tools.launch.elastic.server import CutHost, HostCame, Server

pytestmark = pytest.mark.timeout(120)
AGENT = ("localhost", 7)


class Told(queue.SimpleQueue):
    def next(self) -> Any:
        return self.get(timeout=30)


class Launcher:
    """The parts of a launcher that an agent has to do with. `trap`: of its workers, before they say that they run."""

    def __init__(self, folder: Path, command: str, seconds: float = 100.0, trap: str = ":") -> None:
        self.told, self.ended, self.folder = Told(), Told(), folder
        self.server = Server(["127.0.0.1"], self.told.put)
        self.listening = self.server.listener.__enter__()
        words = ["sh", "-c", f"{trap}; echo $$ > {folder}/$WHO.new; mv {folder}/$WHO.new {folder}/$WHO; {command}"]
        task = {"command": words, "variables": {COORDINATOR: self.server.listener.variable}}
        task |= {"output": "", "seconds": seconds, "peer_timeout": 1.0}
        self.agent = AgentProcess(AGENT, task, HERE, (), self.server.order, lambda *why: self.ended.put(why))

    def start(self, worker: int) -> int:
        """Let the agent start a worker, and give its pid."""
        self.agent.start(worker, {"WHO": str(worker), "END": str(self.folder / "end")})
        file = self.folder / str(worker)
        until = time.monotonic() + 30
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return int(file.read_text())

    def hang_up(self) -> None:
        self.server._connections[AGENT]._channel.connection.shutdown(socket.SHUT_RDWR)

    def stop_listening(self) -> None:
        if self.listening:
            self.listening.__exit__(None, None, None)
            self.listening = None


@pytest.fixture
def launcher(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    with launched(tmp_path, *getattr(request, "param", ("exec sleep 100",))) as made:
        yield made


@contextlib.contextmanager
def launched(folder: Path, command: str, seconds: float = 100.0, trap: str = ":") -> Iterator[Launcher]:
    made = Launcher(folder, command, seconds, trap)
    try:
        assert made.told.next() == HostCame(AGENT[0])
        yield made
    finally:
        made.agent.end(0.0)  # its workers end with it
        made.stop_listening()


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("launcher", [("while :; do sleep 0.05; done", 100.0, "trap 'exit 3' TERM")], indirect=True)
def test_an_agent_starts_signals_and_ends_workers(launcher: Launcher) -> None:
    launcher.start(0), launcher.start(1)
    launcher.agent.signal(0, signal.SIGKILL)
    assert launcher.told.next() == Gone(0, -9, "killed by signal 9 (SIGKILL)")
    launcher.agent.ask_to_end(signal.SIGTERM)
    assert launcher.told.next() == Gone(1, 3, "exit status 3")
    assert launcher.ended.next() == (AGENT, "has lost its agent (this machine: exit status 0)")
    assert launcher.told.next() == CutHost(AGENT, "has lost its agent (the other end has closed the connection)")


def test_what_a_worker_has_left_behind_ends_with_it(tmp_path: Path) -> None:
    """Also a process in a session of its own, which another process has adopted; those of other workers do not."""
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    script = f"(setsid sleep 101 & echo $! > {tmp_path}/$_HPCCOLL_WORKER.new; mv {tmp_path}/$_HPCCOLL_WORKER.new"
    script += f" {tmp_path}/$_HPCCOLL_WORKER.pid); sleep 102"
    agent = LocalAgent(
        ["sh", "-c", script], {**os.environ, COORDINATOR: f"of {tmp_path}"}, "", lambda worker, *_: told.put(worker)
    )
    for worker in (0, 1):
        agent.start(worker, {WORKER: str(worker)})
    files = [tmp_path / f"{worker}.pid" for worker in (0, 1)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    left = [int(file.read_text()) for file in files]
    agent.signal(0, signal.SIGKILL)
    assert told.get(timeout=30) == 0
    assert [ends(pid, 5.0 if pid == left[0] else 0.5) for pid in left] == [True, False]
    agent.end_all(signal.SIGTERM, 5.0)
    assert ends(left[1], 5.0)


def ends(pid: int, seconds: float) -> bool:
    """Whether a process ends within a time; a zombie has ended."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        with contextlib.suppress(OSError):
            if state_and_parent(pid)[0] != "Z":
                time.sleep(0.02)
                continue
        return True
    return False


def test_all_ends_are_told_before_the_agent_ends() -> None:
    """Its process exits then, with all its threads."""
    told = []

    def ended(worker: int, status: int, how: str) -> None:
        time.sleep(0.3)
        told.append((worker, status, how))

    agent = LocalAgent(["sleep", "100"], dict(os.environ), "", ended)
    agent.start(0, {}), agent.start(1, {})
    agent.end_all(signal.SIGTERM, 5.0)
    assert sorted(told) == [(worker, -15, "killed by signal 15 (SIGTERM)") for worker in (0, 1)]


def test_an_agent_tells_of_workers_that_are_stopped_and_continued(launcher: Launcher) -> None:
    pid = launcher.start(0)
    launcher.agent.signal(0, signal.SIGSTOP)
    assert launcher.told.next() == Halted(0, pid)
    launcher.agent.signal(0, signal.SIGCONT)
    assert launcher.told.next() == Halted(0, 0)
    launcher.agent.signal(0, signal.SIGSTOP)
    assert launcher.told.next() == Halted(0, pid)
    launcher.agent.signal(0, signal.SIGKILL)
    assert launcher.told.next() == Gone(0, -9, "killed by signal 9 (SIGKILL)")


def test_without_a_launcher_a_stopped_worker_is_killed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It may be alone on its host: the other ranks have ended without it, and nobody else would end it."""
    with launched(tmp_path, "while :; do sleep 0.1; done", trap="trap '' TERM") as launcher:
        pid = launcher.start(0)
        launcher.start(1)  # goes on for a while after the other one has failed
        launcher.server.send(AGENT, {"members": [0, 1]})
        launcher.stop_listening()
        launcher.agent.signal(0, signal.SIGSTOP)
        assert launcher.told.next() == Halted(0, pid)
        launcher.hang_up()
        assert launcher.ended.next()[1] == "has lost its agent (this machine: exit status 1)"
        assert not lives(pid)
    assert capfd.readouterr().err.count("worker 0 is stopped (state T)") == 1


def test_an_agent_that_was_given_up_kills_its_workers(launcher: Launcher) -> None:
    """The port of the launcher is open, so its process has not ended: it has replaced the ranks of this host."""
    pid = launcher.start(0)
    launcher.server.send(AGENT, {"members": [0]})
    launcher.hang_up()
    assert launcher.ended.next()[1] == "has lost its agent (this machine: exit status 1)"
    assert not lives(pid)


@pytest.mark.parametrize("launcher", [("while [ ! -e $END ]; do sleep 0.05; done",)], indirect=True)
def test_without_a_launcher_members_go_on_and_others_are_killed(launcher: Launcher) -> None:
    member, newcomer = launcher.start(0), launcher.start(1)
    launcher.server.send(AGENT, {"members": [0]})
    launcher.stop_listening()
    launcher.hang_up()
    until = time.monotonic() + 30
    while lives(newcomer) and time.monotonic() < until:
        time.sleep(0.01)
    assert lives(member) and not lives(newcomer)
    (launcher.folder / "end").touch()
    assert launcher.ended.next()[1] == "has lost its agent (this machine: exit status 0)"


@pytest.mark.parametrize("launcher", [("exec sleep 100", 0.5)], indirect=True)
def test_without_a_launcher_the_limit_of_the_job_counts(launcher: Launcher) -> None:
    pid = launcher.start(0)
    launcher.server.send(AGENT, {"members": [0]})
    launcher.stop_listening()
    launcher.hang_up()
    assert launcher.ended.next()[1] == "has lost its agent (this machine: exit status 1)"
    assert not lives(pid)
