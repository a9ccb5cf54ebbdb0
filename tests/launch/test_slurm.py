# SPDX-License-Identifier: Apache-2.0
"""Under a real Slurm: srun without a launcher of ours, `hpccoll run` inside an allocation, and tasks on their own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
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


def run(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def test_srun_needs_no_launcher_of_ours(slurm: Path, program: str) -> None:
    status, output = run("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", sys.executable, program)
    assert status == 0, output
    assert output.count("<4 ranks, 2 nodes, 10>") == 4


def test_run_uses_the_hosts_of_the_allocation(slurm: Path, program: str, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{sys.executable} -m hpccoll run -np 4 --timeout 60 python {program}\n")
    printed = tmp_path / "printed"
    status, output = run("sbatch", "-W", "-N2", "--ntasks-per-node=2", "-o", str(printed), str(script))
    assert status == 0, output + printed.read_text()
    assert printed.read_text().count("<4 ranks, 2 nodes, 10>") == 4


def test_tasks_that_believe_to_be_alone_refuse(slurm: Path, program: str) -> None:
    status, output = run("srun", "--mpi=none", "-N1", "-n3", sys.executable, program)
    assert status != 0
    assert "srun started 3 tasks (SLURM_STEP_NUM_TASKS=3) but MPI says that this process is alone" in output


def test_plain_python_in_a_batch_script_is_a_world_of_one(slurm: Path, program: str, tmp_path: Path) -> None:
    script, printed = tmp_path / "job.sh", tmp_path / "printed"
    script.write_text(f"#!/bin/sh\n{sys.executable} {program}\n")
    status, output = run("sbatch", "-W", "-N2", "--ntasks-per-node=2", "-o", str(printed), str(script))
    assert status == 0, output + printed.read_text()
    assert "<1 ranks, 1 nodes, 1>" in printed.read_text()
