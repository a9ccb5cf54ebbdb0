# SPDX-License-Identifier: Apache-2.0
"""Under a real Slurm: srun without a launcher of ours, `hpccoll run` inside an allocation, and tasks on their own."""

import sys
from pathlib import Path

import pytest
from cluster import Cluster

pytestmark = pytest.mark.timeout(120)
FIRST_JOB = """
import hpccoll, numpy
hpccoll.init()
total = hpccoll.allreduce(numpy.full(1000, hpccoll.rank() + 1.0))[0]
print(f"<{hpccoll.size()} ranks, {hpccoll.cross_size()} nodes, {total:g}>", flush=True)
hpccoll.shutdown()
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "first.py"
    path.write_text(FIRST_JOB)
    return str(path)


def batch(slurm: Cluster, tmp_path: Path, command: str) -> str:
    """What a job of two tasks on each of two nodes prints; it must succeed."""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{command}\n")
    number = slurm.submit("--nodes=2", "--ntasks-per-node=2", script)
    (job,) = slurm.wait(number)
    assert job["JobState"] == "COMPLETED", slurm.output(number)
    return slurm.output(number)


def test_srun_needs_no_launcher_of_ours(slurm: Cluster, program: str) -> None:
    _, output = slurm.run("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", sys.executable, program)
    assert output.count("<4 ranks, 2 nodes, 10>") == 4


def test_run_uses_the_hosts_of_the_allocation(slurm: Cluster, program: str, tmp_path: Path) -> None:
    output = batch(slurm, tmp_path, f"{sys.executable} -m hpccoll run -np 4 --timeout 60 python {program}")
    assert output.count("<4 ranks, 2 nodes, 10>") == 4


def test_tasks_that_believe_to_be_alone_refuse(slurm: Cluster, program: str) -> None:
    status, output = slurm.run("srun", "--mpi=none", "-N1", "-n3", sys.executable, program, check=False)
    assert status != 0
    assert "srun started 3 tasks (SLURM_STEP_NUM_TASKS=3) but MPI says that this process is alone" in output


def test_plain_python_in_a_batch_script_is_a_world_of_one(
    slurm: Cluster, program: str, tmp_path: Path
) -> None:
    assert "<1 ranks, 1 nodes, 1>" in batch(slurm, tmp_path, f"{sys.executable} {program}")
