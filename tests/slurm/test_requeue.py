# SPDX-License-Identifier: Apache-2.0
"""slurm/requeue.sh and its mpirun twin: the time limit comes or a node dies, and the main example goes on."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from cluster import NODES, Cluster

from hpccoll import scheduler

pytestmark = [pytest.mark.timeout(500), pytest.mark.usefixtures("this_python_first")]
STEPS_AN_EPOCH = 14


def until(holds: Callable[[], bool], what: str, timeout: float = 200) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s"
        time.sleep(0.1)


def steps(checkpoint: Path) -> int:
    """Read the number of steps that a run has done."""
    if not checkpoint.exists():
        return 0
    with h5py.File(checkpoint) as file:
        return len(file["loss"])


def start(slurm: Cluster, script: str, folder: Path, epochs: int, *options: object) -> str:
    arguments = ["--folder", folder, "--checkpoint", folder / "run.h5", "--epochs", epochs]
    return slurm.submit(*options, f"slurm/{script}.sh", *arguments)


@pytest.fixture
def paced(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example that a script trains rests after each step (paced.py)."""
    python = tmp_path / "first" / "python"
    python.parent.mkdir()
    with_pace = f'case "$1" in examples/*) set -- {Path(__file__).with_name("paced.py")} "$@"; esac'
    python.write_text(f'#!/bin/sh\n{with_pace}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setitem(slurm.environment, "PATH", f"{python.parent}:{slurm.environment['PATH']}")


@pytest.mark.usefixtures("paced")
def test_the_time_limit(slurm: Cluster, tmp_path: Path) -> None:
    """Both scripts run at once, because Slurm checks the limits only twice a minute. It warns ten minutes before."""
    signals = {"requeue": "USR1@600", "mpirun-requeue": "B:USR1@600"}
    jobs = {}
    for script, signal in signals.items():
        folder = tmp_path / script
        folder.mkdir()
        jobs[start(slurm, script, folder, 500, "--time=30", f"--signal={signal}")] = folder / "run.h5"
    for number, checkpoint in jobs.items():
        until(lambda file=checkpoint: steps(file) > 0, "the first checkpoint")
        slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=5")
    warned = set(jobs)

    def all_are_requeued() -> bool:
        for number in [job for job in warned if f"scontrol requeue {job}` succeeded" in slurm.output(job)]:
            slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=30")  # no warning for the next run
            warned.remove(number)
        return not warned

    until(all_are_requeued, "the requeues")
    for number, checkpoint in jobs.items():
        goes_on(slurm, number, checkpoint)
        slurm.run("scancel", number)
        (job,) = slurm.wait(number)
        assert job["JobState"] == "CANCELLED", "the ranks bring back what was cancelled"


def goes_on(slurm: Cluster, number: str, checkpoint: Path) -> None:
    """The job has stopped after a step, and its next run continues there. Slurm may have warned that run, too."""
    assert "all ranks stop after this step: SIGUSR1" in slurm.output(number)
    reached = steps(checkpoint)
    slurm.wait(number, "RUNNING")
    assert int(slurm.jobs(number)[0]["Restarts"]) >= 1
    until(lambda: steps(checkpoint) > reached, "the next run to come further")
    assert slurm.output(number).count("4 ranks on 2 nodes") >= 2


@pytest.fixture
def asks_this_slurm(slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's commands of this process ask the Slurm of the test."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])


@pytest.mark.usefixtures("asks_this_slurm")
def test_what_was_cancelled_stays_so(slurm: Cluster) -> None:
    """The same holds if Slurm has finished the job before its last rank asks."""
    number = slurm.submit("--nodes=1", "--requeue", "--wrap=sleep 600")
    slurm.wait(number, "RUNNING")
    slurm.run("scancel", number)
    for _ in range(2):
        asked = scheduler.requeue({"SLURM_JOB_ID": number})
        assert not asked and f"Slurm has ended job {number} already" in asked.text
        slurm.wait(number, "CANCELLED")
        until(lambda: not slurm.run("squeue", "--noheader", f"--jobs={number}")[1], "the end of the job")
    assert slurm.jobs(number)[0]["JobState"] == "CANCELLED"


@pytest.mark.usefixtures("asks_this_slurm")
def test_a_task_of_an_array_is_requeued_alone(slurm: Cluster) -> None:
    """The SLURM_JOB_ID of a task may be the number of the whole array."""
    number = slurm.submit("--nodes=1", "--requeue", "--array=1-2", "--wrap=sleep 600")
    slurm.wait(number, "RUNNING")
    tasks = {job["JobId"]: job["ArrayTaskId"] for job in slurm.jobs(number)}
    environment = {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": tasks[number]}
    asked = scheduler.requeue({"SLURM_JOB_ID": number} | environment)
    assert asked, asked.text
    restarts = {job["JobId"]: int(job["Restarts"]) for job in slurm.jobs(number)}
    assert restarts == {job: int(job == number) for job in tasks}
    slurm.run("scancel", number)
    slurm.wait(number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "victim"),
    [
        ("requeue", 1),
        ("requeue", 0),  # with the script: Slurm itself requeues
        ("mpirun-requeue", 1),
    ],
)
def test_a_node_dies(slurm: Cluster, tmp_path: Path, script: str, victim: int) -> None:
    """The ranks and the slurmd of a node are gone at once; the job names the node, and ends on others."""
    epochs, checkpoint = 5, tmp_path / "run.h5"
    slurm.set(SlurmdTimeout=10, MessageTimeout=5)  # seconds until a node that is silent is down
    number = start(slurm, script, tmp_path, epochs, "--time=5")
    until(lambda: steps(checkpoint) > 0, "the first checkpoint")
    node = list(NODES)[victim]
    assert node in slurm.run("scontrol", "show", "hostnames", slurm.jobs(number)[0]["NodeList"])[1].split()
    slurm.crash_node(node)
    try:
        (job,) = slurm.wait(number, timeout=300)
        output = slurm.output(number)
        assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("COMPLETED", "0:0", "1"), output
        assert f": {epochs * STEPS_AN_EPOCH} steps" in output
        assert victim == 0 or f"failed on node {node}" in output
        others = slurm.run("scontrol", "show", "hostnames", job["NodeList"])[1].split()
        assert len(others) == 2 and node not in others
    finally:
        slurm.start_node(node)
        slurm.wait_for("idle", *NODES)
        # Without a new configuration Slurm 22.05 never again gives out all nodes of the job's first run.
        slurm.set(SlurmdTimeout=60, MessageTimeout=30)
