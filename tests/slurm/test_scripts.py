# SPDX-License-Identifier: Apache-2.0
"""The scripts of slurm/ as a user submits them: those for CPUs run the main example, the others pass --test-only."""

import sys
from itertools import pairwise
from pathlib import Path

import h5py
import pytest
from cluster import ROOT, Cluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("this_python_first")]
RANKS = {  # script -> ranks and nodes of the World it must make
    "cpu": (2, 1),
    "multi-node": (4, 2),
    "mpirun": (4, 2),
    "scaling-1": (2, 1),
    "scaling-3": (6, 3),
}
QUICK = ("multi-node", "mpirun", "scaling-3")
SCHEDULED = {  # script -> the partition with nodes of its shape, and an option that none of them can satisfy
    "gpu": ("main", "--gpus-per-node=5"),
    "apptainer": ("main", "--cpus-per-task=17"),
    "pyxis": ("main", "--nodes=5"),
    "frontier": ("frontier", "--cpus-per-task=8"),
    "perlmutter": ("perlmutter", "--constraint=cpu"),
}
ELSEWHERE = {"requeue", "mpirun-requeue", "elastic", "scaling-2"}  # test_requeue.py, test_elastic.py, and below
LSF = {
    "jsrun",
    "jsrun-cpu",
    "jsrun-requeue",
    "lsf-mpirun",
    "lsf-mpirun-requeue",
}  # tests/lsf


def test_every_script_of_slurm_is_submitted() -> None:
    there = {path.stem for path in (ROOT / "slurm").glob("*.sh")}
    assert there == {*RANKS, *SCHEDULED, *ELSEWHERE, *LSF}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RANKS])
def test_cpu_script_runs_the_main_example(slurm: Cluster, tmp_path: Path, name: str) -> None:
    ranks, nodes = RANKS[name]
    options = ["--array=1-1"] if "scaling" in name else []
    number = slurm.submit(*options, f"slurm/{name}.sh", "--epochs", 1, "--folder", tmp_path)
    (job,) = slurm.wait(number)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), slurm.output(number)
    assert f"ranks {ranks}, nodes {nodes}: 14 steps" in slurm.output(number)
    with h5py.File(tmp_path / f"run-{ranks}-ranks.h5") as record:
        assert len(record["loss"][:]) == 14


def test_submit_refuses_more_nodes_than_the_partition_has(slurm: Cluster) -> None:
    """Slurm itself refuses with words about a "node configuration", or keeps the job pending for ever."""
    words = [sys.executable, "-P", "-m", "hpccoll", "submit", "--site", "generic-cpu", "--time", "0:10", "--nodes"]
    status, output = slurm.run(*words, 50, "--", "true", check=False)
    assert status == 2, output
    assert "hpccoll submit: 50 nodes, and a job in the partition main has 4 at most (sinfo): --nodes 4, or" in output
    dry = [*words[:-1], "--dry-run", words[-1]]
    status, output = slurm.run(*dry, 50, "--", "true", check=False)
    assert status == 2 and "50 nodes, and a job in the partition main has 4" in output, output
    assert "not checked" not in slurm.run(*dry, 4, "--", "true")[1]
    status, output = slurm.run(*words, 1, "--", "true")
    number = output.split()[-1]
    (job,) = slurm.wait(number)
    Path(ROOT, f"true-{number}.out").unlink(missing_ok=True)
    assert job["NumNodes"] == "1"


def test_repetitions_run_one_after_the_other(slurm: Cluster, tmp_path: Path) -> None:
    """The array of a scaling study, with a program that only says when it ran."""
    text = (ROOT / "slurm" / "scaling-2.sh").read_text()
    script = tmp_path / "scaling.sh"
    script.write_text(text.replace("python examples/digits/train.py", "sh -c 'date +%s.%N; sleep 0.2; date +%s.%N' #"))
    number = slurm.submit(script)
    jobs = slurm.wait(number)
    assert [job["JobState"] for job in jobs] == ["COMPLETED"] * 3
    printed = [slurm.output(job["JobId"]) for job in jobs]
    times = sorted([float(word) for word in text.split() if word[0].isdigit()] for text in printed)
    assert [len(of_one) for of_one in times] == [8] * 3  # two dates of four tasks each
    assert all(max(before) <= min(after) for before, after in pairwise(times))


@pytest.mark.parametrize("name", SCHEDULED)
def test_script_for_gpus_can_be_scheduled(slurm: Cluster, name: str) -> None:
    """A script can be scheduled on nodes of its shape, and could not if it asked for more than they have."""
    partition, too_much = SCHEDULED[name]
    words = ["sbatch", "--test-only", f"--partition={partition}"]
    status, output = slurm.run(*words, f"slurm/{name}.sh")
    assert status == 0 and "to start at" in output
    status, output = slurm.run(*words, too_much, f"slurm/{name}.sh", check=False)
    assert status != 0, output


def test_output_into_no_folder_ends_a_job_without_a_word(slurm: Cluster, tmp_path: Path) -> None:
    """The job fails without a message, so `hpccoll lint` looks for the folder."""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --output={tmp_path}/logs/job.out\ntouch {tmp_path}/ran\n")
    _, output = slurm.run("hpccoll", "lint", script, check=False)
    assert f"{script}:2: error: " in output and f"mkdir -p {tmp_path}/logs before sbatch" in output
    (job,) = slurm.wait(slurm.run("sbatch", "--parsable", script)[1].strip())
    assert (job["JobState"], job["Reason"]) == ("FAILED", "JobLaunchFailure")
    assert [path.name for path in tmp_path.iterdir()] == ["job.sh"]


def test_submit_hands_the_script_to_sbatch(slurm: Cluster, tmp_path: Path) -> None:
    command = f"--site generic-cpu --nodes 2 --time 10 examples/digits/train.py --epochs 1 --folder {tmp_path}"
    _, output = slurm.run("hpccoll", "submit", *command.split())
    number = output.split()[-1]
    assert slurm.wait(number)[0]["JobState"] == "COMPLETED"
    (ROOT / f"train-{number}.out").unlink()
    assert (tmp_path / "run-4-ranks.h5").exists()
