# SPDX-License-Identifier: Apache-2.0
"""Under a real Slurm: srun without a launcher of ours, `hpccoll run` inside an allocation, and tasks on their own.

The MPI is this environment's; test_other_mpis.py has other wheels, tests/matrix.py runs this file with the system's.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster

pytestmark = pytest.mark.timeout(300)
FIRST_JOB = """
import hpccoll, numpy
hpccoll.init()
total = hpccoll.allreduce(numpy.full(1000, hpccoll.rank() + 1.0))[0]
print(f"<{hpccoll.size()} ranks, {hpccoll.cross_size()} nodes, {total:g}>", flush=True)
hpccoll.shutdown()
"""
SRUN = {  # MPI library -> the plugin of srun that it works with, and the ranks per node up to which it does
    "Open MPI v4": ("pmix", 4),
    "Open MPI v5": ("pmix", 2),  # with Slurm 22.05's PMIx 4 its wheel fails from 3 ranks per node on
    "MPICH Version": ("pmi2", 4),
}


@pytest.fixture(scope="module")
def srun() -> tuple[str, int]:
    """Find the plugin and the ranks per node for the MPI of this environment."""
    ask = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
    done = subprocess.run([sys.executable, "-P", "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    return next(how for library, how in SRUN.items() if done.stdout.startswith(library))


@pytest.fixture(autouse=True)
def wheel_of_open_mpi_4(slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it looks for its daemon where it was built, unless it is told where it is."""
    if Path(sys.prefix, "bin", "orted").exists():
        monkeypatch.setitem(slurm.environment, "OPAL_PREFIX", sys.prefix)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "first.py"
    path.write_text(FIRST_JOB)
    return str(path)


def batch(slurm: Cluster, tmp_path: Path, command: str) -> str:
    """Run a job of two tasks on each of two nodes, which must succeed, and return its output."""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{command}\n")
    number = slurm.submit("--nodes=2", "--ntasks-per-node=2", script)
    (job,) = slurm.wait(number)
    assert job["JobState"] == "COMPLETED", slurm.output(number)
    return slurm.output(number)


def test_srun_needs_no_launcher_of_ours(slurm: Cluster, program: str, srun: tuple[str, int]) -> None:
    plugin, each = srun
    p = 2 * each
    command = ["srun", f"--mpi={plugin}", "--kill-on-bad-exit", "-N2", f"--ntasks-per-node={each}"]
    _, output = slurm.run(*command, sys.executable, "-P", program)
    assert output.count(f"<{p} ranks, 2 nodes, {p * (p + 1) // 2}>") == p


def test_nodes_with_different_numbers_of_tasks(slurm: Cluster, program: str, srun: tuple[str, int]) -> None:
    plugin, _ = srun
    command = ["srun", f"--mpi={plugin}", "--kill-on-bad-exit", "-N2", "-n3", "--distribution=block"]
    _, output = slurm.run(*command, sys.executable, "-P", program)
    assert "3 ranks on 2 nodes (2+1), ordered by Slurm's topology (1 switch); " in output
    assert output.count("<3 ranks") == output.count(", 6>") == 3


def test_run_uses_the_hosts_of_the_allocation(slurm: Cluster, program: str, tmp_path: Path) -> None:
    """Without -np: a rank per slot."""
    output = batch(slurm, tmp_path, f"{sys.executable} -P -m hpccoll run --timeout 150 python -P {program}")
    assert "hpccoll run: 4 ranks, one per slot of Slurm job" in output
    assert output.count("<4 ranks, 2 nodes, 10>") == 4


def test_tasks_that_believe_to_be_alone_refuse(slurm: Cluster, program: str) -> None:
    command = ["srun", "--mpi=none", "-N1", "-n3", sys.executable, "-P", program]
    status, output = slurm.run(*command, check=False)
    assert status != 0
    if "OPAL ERROR: Unreachable" not in output:  # Open MPI 4 refuses by itself
        assert "srun started 3 tasks (SLURM_STEP_NUM_TASKS=3) but MPI says that this process is alone" in output


STEPS = {
    "pmix": ["--mpi=pmix", "-N2", "-n3"],
    "pmi2": ["--mpi=pmi2", "-N2", "-n3"],
    "heterogeneous": ["-N1", "-n1", ":", "-N1", "-n2"],
}
WHO = """
from hpccoll import detect, inherited
p = detect.place(inherited.environment())
print(f"<{p.launcher} {p.rank} {p.size} {p.local_rank} {p.local_size} {p.node}>", flush=True)
"""


@pytest.mark.parametrize("step", STEPS)
def test_each_task_knows_its_place(slurm: Cluster, step: str) -> None:
    """The recorded environments of tests/detect are still those of the Slurm that runs here."""
    _, output = slurm.run("srun", *STEPS[step], sys.executable, "-c", WHO)
    nodes = [node for node in ("h1", "h2", "h3", "h4") if f" {node}>" in output]
    counts = (1, 2) if step == "heterogeneous" else (2, 1)
    rank = 0
    for node, count in zip(nodes, counts, strict=True):
        for local in range(count):
            assert f"<srun {rank} 3 {local} {count} {node}>" in output
            rank += 1


STEPS_UNTIL_THE_END = """
import hpccoll, numpy, time
hpccoll.init()
with hpccoll.preemption(margin=170) as p:
    for step in range(100000):
        hpccoll.allreduce(numpy.ones(3), name="step")
        time.sleep(0.005)
        if p.should_stop():
            print(f"<{step} {p.reason}>", flush=True)
            break
hpccoll.shutdown()
"""


def test_the_end_of_the_jobs_time_is_known(slurm: Cluster) -> None:
    """The limit is three minutes. Without a variable rank 0 asks squeue; all ranks stop after the same step."""
    _, output = slurm.run("srun", "--mpi=pmix", "-N2", "-n3", "--time=3", sys.executable, "-c", STEPS_UNTIL_THE_END)
    stopped = [line for line in output.splitlines() if line.startswith("<")]
    assert len(stopped) == 3, output
    assert len({line.split()[0] for line in stopped}) == 1
    assert "the end of the job's time" in output
    assert "unknown" not in output


def test_plain_python_in_a_batch_script_is_a_world_of_one(slurm: Cluster, program: str, tmp_path: Path) -> None:
    assert "<1 ranks, 1 nodes, 1>" in batch(slurm, tmp_path, f"{sys.executable} -P {program}")
