# SPDX-License-Identifier: Apache-2.0
"""The tests' own Slurm leaves nothing behind, whatever becomes of the tests."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster

UP = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from cluster import Cluster
Cluster(Path(sys.argv[2])).up()
print("up", flush=True)
time.sleep(60)
"""


def daemons(folder: Path) -> list[str]:
    """Command lines of processes that name this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.timeout(300)
def test_killed_tests_leave_no_daemon(slurm: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    command = [sys.executable, "-c", UP, Path(__file__).parent, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout and tests.stdout.readline() == "up\n"
        assert any(line.startswith("slurmctld") for line in daemons(folder))
        tests.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while left := daemons(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert slurm.states()["h1"] == "idle", "and another Slurm goes on"
