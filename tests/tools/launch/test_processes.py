# SPDX-License-Identifier: Apache-2.0
"""A command that the launcher asks something is given up with all that it has started."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpccoll.tools.launch import installed
from hpccoll.tools.launch.elastic import discovery
from hpccoll.tools.launch.job import LaunchError
from hpccoll.tools.launch.processes import LARGEST_ANSWER, EndlessAnswerError, answer_of

KEEPS_THE_PIPE = "#!/bin/sh\nsleep 600 &\necho $! > {file}\nwait\n"
"""A script that has started something, as Intel's mpirun has."""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def script(folder: Path, text: str) -> str:
    file = folder / "script"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def gone(file: Path) -> bool:
    """Whether what the script has started is no more, soon; on a loaded machine it may have started nothing."""
    limit = time.monotonic() + 60
    if not file.exists() or not file.read_text():
        return True
    pid = int(file.read_text())
    while is_alive(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not is_alive(pid)


def test_what_a_command_prints() -> None:
    answered = answer_of("echo out; echo err >&2; echo $WORD; exit 3", 60, {**os.environ, "WORD": "word"})
    assert (answered.returncode, answered.stdout, answered.stderr) == (3, "out\nword\n", "err\n")
    assert answer_of(["echo", "a b"], 60).stdout == "a b\n"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", ["", " >&2"])
def test_a_command_that_prints_without_end(where: str) -> None:
    """All of it was kept, for as long as the command might take."""
    assert len(answer_of(f"head -c {LARGEST_ANSWER} /dev/zero", 60).stdout) == LARGEST_ANSWER
    with pytest.raises(EndlessAnswerError, match="more than 4 MiB"):
        answer_of(f"yes{where}", 3600)
    with pytest.raises(LaunchError, match=r"--host-discovery-script yes.*: it has printed more than 4 MiB"):
        discovery.ask(f"yes{where}", 1)


@pytest.mark.timeout(120)
def test_a_launcher_that_prints_without_end(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"is no launcher of an MPI \(--version: it has printed more than"):
        installed.banner_of(script(tmp_path, "#!/bin/sh\nyes\n"), dict(os.environ))


@pytest.mark.timeout(120)
def test_the_first_call_of_a_discovery_script_is_within_the_time_of_the_job() -> None:
    command = ["run", "--timeout", "2", "--host-discovery-script", "sleep 600", "-np", "2", "true"]
    done = subprocess.run([sys.executable, "-m", "hpccoll", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 124, done.stderr
    assert "--host-discovery-script sleep 600: it has not ended after 2 s (--timeout)" in done.stderr


@pytest.mark.timeout(120)
def test_what_a_command_has_started_ends_with_it(tmp_path: Path) -> None:
    """It would keep the pipe open, and be waited for without a limit."""
    file = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        answer_of(script(tmp_path, KEEPS_THE_PIPE.format(file=file)), 3)
    assert gone(file)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_launcher_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "ANSWER", 3)
    command = script(tmp_path, KEEPS_THE_PIPE.format(file=tmp_path / "pid"))
    with pytest.raises(LaunchError, match="did not answer in 3 s: name another"):
        installed.banner_of(command, dict(os.environ))
    assert gone(tmp_path / "pid")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_discovery_script_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LONGEST", 3)
    command = script(tmp_path, KEEPS_THE_PIPE.format(file=tmp_path / "pid"))
    with pytest.raises(LaunchError, match="it has not ended after 3 s"):
        discovery.ask(command, 1)
    assert gone(tmp_path / "pid")


@pytest.mark.parametrize(("prints", "says"), [("h1:2,h2:2", "has several hosts"), ("\\377", "can't decode")])
def test_a_discovery_script_that_prints_something_else(prints: str, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        discovery.ask(f"printf '{prints}\\n'", 1)
