# SPDX-License-Identifier: Apache-2.0
"""slurm/elastic.sh: a node or a step of a job is lost, and it goes on, on a spare node; nothing outlives the script."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import NODES, Cluster

pytestmark = [pytest.mark.timeout(500), pytest.mark.slow, pytest.mark.usefixtures("this_python_first")]
EPOCHS = 20


def until(holds: Callable[[], bool], what: str, slurm: Cluster, number: str, timeout: float = 200) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s\n{slurm.output(number)}"
        time.sleep(0.1)


def crash(slurm: Cluster, _number: str, node: str) -> None:
    slurm.crash_node(node)


def cancel_step(slurm: Cluster, number: str, node: str) -> None:
    steps = slurm.run("squeue", "--steps", "--noheader", "--format=%i %N", f"--jobs={number}")[1].splitlines()
    (step,) = [line.split()[0] for line in steps if line.split()[-1] == node and "batch" not in line]
    slurm.run("scancel", "--signal=KILL", step)


@pytest.mark.parametrize("strike", [crash, cancel_step])
def test_the_job_goes_on_on_a_spare_node(
    slurm: Cluster, tmp_path: Path, strike: Callable[[Cluster, str, str], None]
) -> None:
    slurm.set(SlurmdTimeout=10, MessageTimeout=5)  # seconds until a node that is silent is down
    words = ["--epochs", EPOCHS, "--pause", 0.1, "--checkpoint", tmp_path / "commit"]
    number = slurm.submit("--time=8", "slurm/elastic.sh", *words)
    node = ""
    try:
        until(lambda: "rank 3 of 4: epoch" in slurm.output(number), "four ranks", slurm, number)
        node = slurm.run("scontrol", "show", "hostnames", slurm.jobs(number)[0]["NodeList"])[1].split()[1]
        strike(slurm, number, node)
        (job,) = slurm.wait(number, timeout=300)
        output = slurm.output(number)
        assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("COMPLETED", "0:0", "0"), output
        assert f"(host {node}, slot 0) was lost" in output and f"host {node} is excluded for 60 s" in output
        assert "4 ranks at the end" in output, output
    finally:
        if strike is crash and node:
            slurm.start_node(node)
        slurm.run("scancel", number, check=False)
        slurm.wait_for("idle", *NODES)
        slurm.set(SlurmdTimeout=60, MessageTimeout=30)


def processes_of(number: str) -> dict[int, str]:
    """The processes of a job, with their words, but for those of Slurm."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURM_JOB_ID={number}\0".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def cancel(slurm: Cluster, number: str) -> None:
    slurm.run("scancel", number)


def kill_launcher(_slurm: Cluster, number: str) -> None:
    (launcher,) = [pid for pid, words in processes_of(number).items() if "hpccoll run -np 4" in words]
    os.kill(launcher, signal.SIGKILL)


@pytest.mark.parametrize(("strike", "state"), [(cancel, "CANCELLED"), (kill_launcher, "FAILED")])
def test_nothing_outlives_the_script(
    slurm: Cluster, tmp_path: Path, strike: Callable[[Cluster, str], None], state: str
) -> None:
    words = ["--epochs", EPOCHS, "--pause", 0.1, "--checkpoint", tmp_path / "commit"]
    number = slurm.submit("--time=8", "slurm/elastic.sh", *words)
    try:
        until(lambda: "rank 3 of 4: epoch" in slurm.output(number), "four ranks", slurm, number)
        strike(slurm, number)
        (job,) = slurm.wait(number, timeout=200)
        assert job["JobState"] == state, slurm.output(number)
        until(lambda: not processes_of(number), "the end of all processes", slurm, number, timeout=60)
    finally:
        slurm.run("scancel", number, check=False)
