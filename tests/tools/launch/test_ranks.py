# SPDX-License-Identifier: Apache-2.0
"""What `hpccoll run` knows of its ranks: connections that only the job's own processes can make."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpccoll import channel
from hpccoll.launch_protocol import LAUNCHER
from hpccoll.tools.launch.installed import find_launcher
from hpccoll.tools.launch.ranks import Ranks

pytestmark = pytest.mark.timeout(120)


def wait_until(condition: object, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def tell(variable: str, rank: int) -> channel.Channel:
    secret, addresses = channel.parse(variable)
    connected = channel.connect(addresses, secret)
    connected.send(b'{"rank": %d, "host": "h1", "pid": 7}' % rank)
    return connected


def test_ranks_come_and_go() -> None:
    ranks = Ranks(2, ["127.0.0.1"])
    with ranks.listener as listener:
        first, second = (tell(listener.variable, rank) for rank in (0, 1))
        first.send(b'{"worlds": 0}')
        first.close()
        assert not ranks.have_ended()
        second.close()
        wait_until(ranks.have_ended)
    assert list(ranks.lost()) == [1]


def test_a_rank_whose_end_is_seen_after_that_of_mpirun_did_not_end_well() -> None:
    """Open MPI 5 may say status 0 although it has killed the ranks; their connections close in their own time."""
    ranks = Ranks(3, ["127.0.0.1"])
    with ranks.listener as listener:
        shut_down, ends, runs = (tell(listener.variable, rank) for rank in range(3))
        shut_down.send(b'{"worlds": 0}')
        wait_until(lambda: len(ranks._known) == 3 and not ranks._known[0].worlds)
        threading.Timer(0.3, ends.close).start()
        unfinished = ranks.unfinished(1.0)
        assert {number: rank.alive for number, rank in unfinished.items()} == {1: False, 2: True}
        runs.send(b'{"worlds": 0}')
        assert list(ranks.unfinished(30)) == [1]
        shut_down.close()
        runs.close()


def test_the_others_hear_of_a_rank_that_is_lost() -> None:
    """Also those that come later; of a rank that has shut down nobody hears."""
    ranks = Ranks(3, ["127.0.0.1"])
    with ranks.listener as listener:
        first, second = (tell(listener.variable, rank) for rank in (0, 1))
        wait_until(lambda: len(ranks._known) == 2)
        second.close()
        assert json.loads(first.receive()) == {"host": "h1", "pid": 7}
        third = tell(listener.variable, 2)
        assert json.loads(third.receive()) == {"host": "h1", "pid": 7}
        third.send(b'{"worlds": 0}')
        third.close()
        wait_until(lambda: not ranks._known[2].alive)
        first.connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            first.receive()
        first.close()


ENDS_LATE = """
import os, sys
from hpccoll import launched


class Late:
    def __del__(self, write=os.write, read=os.read):
        write(1, b"late")
        read(0, 1)


sys.ends_after_all_modules = Late()
launched.world_begins(os.environ, print)
launched.world_ended(print)
"""


def test_a_process_has_ended_when_nothing_of_it_runs() -> None:
    """Python has ended, and closed the sockets of all modules; MPI_Finalize, which comes then, may take long."""
    ranks = Ranks(1, ["127.0.0.1"])
    with ranks.listener as listener:
        environment = {LAUNCHER: listener.variable, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
        command = [sys.executable, "-c", ENDS_LATE]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=os.environ | environment) as process:
            assert process.stdout
            assert process.stdout.read(4) == b"late"
            wait_until(lambda: ranks.lost() == {} and ranks._known)
            time.sleep(0.2)  # a connection that was closed is noticed sooner
            assert not ranks.have_ended()
            process.communicate(b".", timeout=60)
        wait_until(ranks.have_ended)


MPIRUN = """#!/bin/sh
[ "$1" = --version ] && exec {mpirun} --version
{mpirun} "$@"
exec sleep 600
"""
WORLD = "import hpccoll, os, sys; hpccoll.init(); hpccoll.barrier(); {end}"


def run(launcher: Path, end: str) -> "subprocess.CompletedProcess[str]":
    program = WORLD.format(end=end)
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--launcher", str(launcher), "python", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_mpirun_that_outlives_its_ranks_is_ended(tmp_path: Path) -> None:
    """A real mpirun, which ends; the script around it does not, as mpirun does not where a host is cut off."""
    launcher = tmp_path / "mpirun"
    launcher.write_text(MPIRUN.format(mpirun=find_launcher(os.environ["PATH"])))
    launcher.chmod(0o755)
    done = run(launcher, "hpccoll.shutdown()")
    assert done.returncode == 1
    assert "all ranks had ended, mpirun had not after 8 s more, and was ended" in done.stderr
    assert "without hpccoll.shutdown()" not in done.stderr


def test_status_0_of_mpirun_is_not_believed_if_a_rank_was_lost(tmp_path: Path) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text(MPIRUN.format(mpirun=find_launcher(os.environ["PATH"])).replace("exec sleep 600", "exit 0"))
    launcher.chmod(0o755)
    done = run(launcher, "import time; time.sleep(1); os.kill(os.getpid(), 9)")
    assert done.returncode == 1
    assert "not all ranks had ended well" in done.stderr
    assert "ended without hpccoll.shutdown()" in done.stderr


LEFT_BY_A_KILLED_MPIRUN = """#!/bin/sh
[ "$1" = --version ] && exec {mpirun} --version
mkdir -p {folder}/ompi.$$ && touch {folder}/ompi.$$/pmix.$(uname -n).tool
exec {mpirun} "$@"
"""


def test_files_that_a_killed_mpirun_left_behind_harm_no_later_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI 5 ends with status 213 where a killed mpirun of the same process number left its files."""
    folder, launcher = tmp_path / "sessions", tmp_path / "mpirun"
    folder.mkdir()
    monkeypatch.setenv("PRTE_MCA_prte_local_tmpdir_base", str(folder))
    script = LEFT_BY_A_KILLED_MPIRUN.format(mpirun=find_launcher(os.environ["PATH"]), folder=folder)
    launcher.write_text(script)
    launcher.chmod(0o755)
    done = run(launcher, "hpccoll.shutdown()")
    assert done.returncode == 0, done.stdout + done.stderr
    (left,) = folder.iterdir()  # the folder of hpccoll run is gone
    assert left.name.startswith("ompi.")


KILLED = """
import os, signal, time
import hpccoll
from hpccoll import launched
hpccoll.init()
hpccoll.barrier()
if hpccoll.rank() == 1:
    assert launched._connection._is_made.wait(60)  # a thread makes it: init() does not wait for the launcher
    os.kill(os.getpid(), signal.SIGKILL)
began = time.monotonic()
try:
    while True:
        hpccoll.barrier()
except hpccoll.RecoverableError as error:  # a rank that calls late finds its World broken
    print(f"after {time.monotonic() - began:.3f} s: {error}", flush=True)
    time.sleep(2)  # the first one ends the job
"""


def test_a_rank_that_was_alone_on_its_node_is_lost_at_once() -> None:
    """No neighbour sees its process, and MPI says nothing: its silence would show after HPCCOLL_PEER_TIMEOUT, 30 s."""
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", "90", "-np", "3", "--nodes", "3"]
    command += ["--launcher-options=--enable-recovery", sys.executable, "-P", "-c", KILLED]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    said = r"after ([\d.]+) s: .*rank 1 \(host \S+, pid \d+\) was lost: its process is gone, its launcher says"
    seconds = [float(found) for found in re.findall(said, done.stdout)]
    assert len(seconds) == 2, done.stdout
    assert max(seconds) < 15, done.stdout


def test_status_0_is_not_said_to_be_that_of_mpirun_where_there_is_none() -> None:
    done = run(Path("ssh"), "import time; time.sleep(1); os._exit(0)")
    assert done.returncode == 1
    assert "hpccoll run: the launcher ended with status 0, but not all ranks had ended well" in done.stderr
    assert "hpccoll run: mpirun" not in done.stderr
