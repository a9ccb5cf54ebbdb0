# SPDX-License-Identifier: Apache-2.0
"""What a program, or its user, does inside a job of a real Slurm: `hpccoll.run`, `hpccoll doctor --attach`."""

import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.usefixtures("this_python_first")]
CALLS = """
import hpccoll

def task(add):
    hpccoll.init()
    seen = hpccoll.rank(), hpccoll.cross_rank(), int(hpccoll.allreduce(hpccoll.rank() + add))
    hpccoll.shutdown()
    return seen

print(hpccoll.run(task, (10,)), flush=True)
"""
HANGS = """
import hpccoll, numpy, time

def simulate():
    print("simulates", flush=True)
    time.sleep(600)

hpccoll.init()
if hpccoll.rank() == 2:
    simulate()
hpccoll.allreduce(numpy.ones(3), name="field")
"""


def script(folder: Path, program: str, command: str) -> Path:
    (folder / "program.py").write_text(program)
    made = folder / "job.sh"
    made.write_text(f"#!/bin/sh\n{command} {sys.executable} -P {folder / 'program.py'}\n")
    return made


def test_a_function_on_all_ranks_of_the_allocation(slurm: Cluster, tmp_path: Path) -> None:
    """The allocation says how many ranks there are, and where."""
    number = slurm.submit("--nodes=2", "--ntasks-per-node=2", script(tmp_path, CALLS, ""))
    (job,) = slurm.wait(number)
    output = slurm.output(number)
    assert job["JobState"] == "COMPLETED", output
    assert "[(0, 0, 46), (1, 0, 46), (2, 1, 46), (3, 1, 46)]" in output


@pytest.mark.parametrize(("array", "task"), [((), ""), (("--array=7-8%1",), "_7")])
def test_a_job_that_hangs_is_looked_at(slurm: Cluster, tmp_path: Path, array: tuple[str, ...], task: str) -> None:
    """squeue shows a task of an array as 12_7, and its processes have another number."""
    number = slurm.submit(*array, "--nodes=2", "--ntasks-per-node=2", script(tmp_path, HANGS, "hpccoll run"))
    deadline = time.monotonic() + 120
    while not any("simulates" in slurm.output(job["JobId"]) for job in slurm.jobs(number)):
        assert time.monotonic() < deadline, slurm.output(number)
        time.sleep(0.2)
    time.sleep(1.5)
    _, said = slurm.run(sys.executable, "-m", "hpccoll", "doctor", "--attach", f"{number}{task}", check=False)
    said = " ".join(said.split())
    assert 'Rank 2 did not call allreduce "field" (float64, shape (3,)), which ranks 0, 1, 3 called' in said
    assert "simulate (" in said
