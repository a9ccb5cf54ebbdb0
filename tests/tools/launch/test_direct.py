# SPDX-License-Identifier: Apache-2.0
"""`hpccoll run --launcher ssh`: ranks on this machine without MPI, how they end, and the store in which they meet."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from hpccoll import StartError, channel
from hpccoll.rendezvous.launcher_store import LauncherStore
from hpccoll.tools.launch.direct.agent import Agent
from hpccoll.tools.launch.direct.store import StoreServer

RUN = [sys.executable, "-m", "hpccoll", "run", "--launcher", "ssh", "--timeout", "60"]


def run(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **variables}
    return subprocess.run([*RUN, *words], env=env, capture_output=True, text=True, timeout=100, check=False)


def program(text: str) -> list[str]:
    return [sys.executable, "-P", "-c", text]


WORLD = """
import os, sys, hpccoll
hpccoll.init()
with hpccoll.World(verbose=0) as another:
    assert another.allreduce(1) == hpccoll.size()
assert hpccoll.allreduce(1) == hpccoll.size() == 3 and "mpi4py" not in sys.modules
print("fine", hpccoll.rank(), os.environ["GREETING"])
hpccoll.shutdown()
"""


def test_ranks_meet_and_get_their_variables(tmp_path: Path) -> None:
    """Two Worlds after one another in one store; output goes into files of each rank."""
    done = run("-np", "3", "-x", "GREETING=hello", "--output", str(tmp_path), *program(WORLD))
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        assert (tmp_path / f"rank.{rank}" / "stdout").read_text() == f"fine {rank} hello\n"
    line = (tmp_path / "rank.0" / "stderr").read_text()
    assert "started by hpccoll run" in line and "authenticated by HPCCOLL_SECRET" in line


def test_of_ranks_that_end_at_once_a_killed_one_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """The others have mostly ended because of it."""
    ranks: dict[str, dict[str, str]] = {"0": {}, "1": {}, "2": {}}
    command = ["bash", "-c", "[ $_HPCCOLL_RANK = 1 ] && kill -KILL $$; exit 3"]
    for number, variables in ranks.items():
        variables["_HPCCOLL_RANK"] = number
    agent = Agent({"command": command, "variables": {}, "ranks": ranks, "output": "", "input": [os.devnull, "0"]})
    for rank in agent._ranks.values():
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
    assert agent.wait() == 128 + signal.SIGKILL
    said = capfd.readouterr().err
    assert "hpccoll run: rank 1 " in said and "was killed by SIGKILL" in said and said.count("rank ") == 1


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("sys.exit(7)", 7, "rank 1 (host {host}, pid "),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"),
    ],
)
def test_a_rank_that_fails_ends_the_job(how: str, status: int, said: str) -> None:
    """The others have some seconds to end by themselves, and are ended then."""
    text = f"""
import os, signal, sys, time
if os.environ["_HPCCOLL_RANK"] == "1":
    {how}
time.sleep(300)
"""
    done = run("-np", "2", *program(text))
    assert done.returncode == status, done.stderr
    assert said.format(host=socket.gethostname()) in done.stderr


def test_signals_reach_the_ranks() -> None:
    """The program decides what SIGUSR1 means."""
    text = "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: exit(0)); os.write(1, b'up\\n'); signal.pause()"
    with subprocess.Popen([*RUN, "-np", "2", *program(text)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        assert [running.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        running.send_signal(signal.SIGUSR1)
        assert running.wait(60) == 0


def test_a_second_interrupt_kills_ranks_that_do_not_end() -> None:
    """One that follows at once is the same, as timeout(1) sends it to the process and to its group."""
    text = "import os, signal; signal.signal(signal.SIGINT, lambda *_: os.write(1, b'no\\n')); os.write(1, b'up\\n')"
    rank = program(text + "\nwhile True: signal.pause()")
    pipe = subprocess.PIPE
    with subprocess.Popen([*RUN, "-np", "1", *rank], stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout and running.stderr
        assert running.stdout.readline() == "up\n"
        for _ in range(2):
            running.send_signal(signal.SIGINT)
            assert running.stdout.readline() == "no\n"
        time.sleep(1.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == -signal.SIGINT
        assert "interrupted again: the ranks are killed" in running.stderr.read()


def test_no_rank_outlives_a_killed_launcher() -> None:
    """Ranks get SIGTERM, with which they may save, and are killed some seconds later."""
    text = "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'save\\n'))"
    rank = program(text + "\nos.write(1, b'%d\\n' % os.getpid())\nwhile True: signal.pause()")
    with subprocess.Popen([*RUN, "-np", "1", *rank], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        pid = int(running.stdout.readline())
        running.kill()
        assert running.stdout.readline() == "save\n"
        wait_for_the_end_of(pid)


def test_no_rank_outlives_its_agent() -> None:
    """The end of the agent's standard input, as when ssh has lost its connection, is the end of the ranks."""
    task = {
        "command": program("import os, time; print(os.getpid(), flush=True); time.sleep(300)"),
        "folder": os.getcwd(),
        "variables": {},
        "ranks": {"0": {}},
        "output": "",
        "input": [os.devnull, "0"],
    }
    command = [sys.executable, "-m", "hpccoll.tools.launch.direct.agent"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdin and agent.stdout
        agent.stdin.write(json.dumps(task) + "\n")
        agent.stdin.flush()
        pid = int(agent.stdout.readline())
        agent.stdin.close()
        assert agent.wait(60) == 1
    wait_for_the_end_of(pid)


def wait_for_the_end_of(pid: int) -> None:
    limit = time.monotonic() + 30
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end at any moment
        while "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]:
            assert time.monotonic() < limit, "the process lives on"
            time.sleep(0.05)


@pytest.mark.parametrize("starts", ["sleep 300 &", "setsid sleep 300 &"])
@pytest.mark.parametrize(("ends", "status"), [("exit 0", 0), ("kill -KILL $$", 137)])
def test_a_rank_leaves_no_process_on_its_host(starts: str, ends: str, status: int) -> None:
    """On another host nobody but the agent can end them; they change nothing in the status of the ranks."""
    rank = f"{starts} echo $!; {ends}"
    task = {"command": ["bash", "-c", rank], "folder": os.getcwd(), "variables": {}, "ranks": {"0": {}}, "output": ""}
    task["input"] = [os.devnull, "0"]
    command = [sys.executable, "-m", "hpccoll.tools.launch.direct.agent"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as agent:
        assert agent.stdin and agent.stdout and agent.stderr
        agent.stdin.write(json.dumps(task) + "\n")
        agent.stdin.flush()
        pid = int(agent.stdout.readline())
        assert agent.wait(60) == status
        assert "killed 1 processes that outlived the ranks" in agent.stderr.read()
    wait_for_the_end_of(pid)


def test_a_process_that_a_rank_leaves_behind_is_no_failed_rank() -> None:
    done = run("-np", "2", "bash", "-c", "sleep 300 >/dev/null 2>&1 & exit 0")
    assert done.returncode == 0, done.stderr


def test_a_host_that_is_named_twice_is_one_node() -> None:
    """The ranks of its second mention were killed when those of the first had ended, and the status was 0."""
    rank = "echo $_HPCCOLL_NODE $_HPCCOLL_LOCAL_RANK; [ $_HPCCOLL_RANK = 0 ] || { sleep 1; exit 5; }"
    done = run("-H", "localhost,localhost", "bash", "-c", rank)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (5, ["0 0", "0 1"]), done.stderr


def test_the_name_of_a_variable_may_have_any_character() -> None:
    """POSIX: a name has no `=`; it may have all other characters, of which shells use some only."""
    done = run("-np", "1", "-x", "A,B=1", *program("import os; print(os.environ['A,B'])"))
    assert done.stdout == "1\n", done.stderr


@pytest.fixture
def server() -> Iterator[StoreServer]:
    made = StoreServer(["127.0.0.1"])
    with made.listener:
        yield made


def test_the_store_of_the_launcher(server: StoreServer) -> None:
    first, second = (LauncherStore(server.listener.variable) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        use_both(first, second)


def use_both(first: LauncherStore, second: LauncherStore) -> None:
    data = bytes(range(256)) * 1000
    waiting = threading.Thread(target=lambda: second.wait(["a", "b"], timedelta(seconds=60)))
    waiting.start()
    first.set("a", data)
    assert first.check(["a"]) and not first.check(["a", "b"])
    with pytest.raises(TimeoutError):
        first.wait(["b"], timedelta(seconds=0.01))
    first.set("b", b"")
    waiting.join(60)
    assert not waiting.is_alive()
    assert (second.get("a"), second.get("b")) == (data, b"")
    with pytest.raises(KeyError):
        second.get("c")


def test_a_stranger_cannot_write_into_it(server: StoreServer) -> None:
    """A wrong secret: there is no connection, and nothing was set."""
    with pytest.raises(StartError, match="does not know the secret"):
        LauncherStore(channel.text_of(channel.new_secret(), server.listener.addresses))
    with contextlib.closing(LauncherStore(server.listener.variable)) as rank:
        assert not rank.check(["a"])
