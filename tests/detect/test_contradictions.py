# SPDX-License-Identifier: Apache-2.0
"""Contradictions between launcher and MPI are refused with the remedy, unless the user means them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpccoll.compared import from_list
from hpccoll.detect import Place
from hpccoll.detect.contradictions import contradiction, singleton_problem, slurm_pmix_risk

SRUN_PMIX = {
    "PMIX_NAMESPACE": "slurm.pmix.3.0",
    "PMIX_RANK": "5",
    "PMIX_VERSION": "4.2.2rc2",
    "SLURM_JOB_ID": "3",
    "SLURM_LOCALID": "2",
    "SLURM_MPI_TYPE": "pmix",
    "SLURM_NTASKS": "6",
    "SLURM_PROCID": "5",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_TASKS_PER_NODE": "3(x2)",
}
SRUN_NONE = {name: value for name, value in SRUN_PMIX.items() if "PMIX" not in name and name != "SLURM_MPI_TYPE"}
BATCH = {"SLURM_JOB_ID": "3", "SLURM_NTASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "1"}
OPEN_MPI_5 = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"


def test_old_pmix_and_three_ranks_a_node_is_said_before_mpi_starts() -> None:
    problem = str(slurm_pmix_risk(SRUN_PMIX, OPEN_MPI_5))
    assert "Slurm's PMIx 4.2.2 and 3 ranks per node" in problem
    assert "hpccoll run" in problem


@pytest.mark.parametrize(
    ("change", "library"),
    [
        ({}, "Open MPI v4.1.8, package: Open MPI"),
        ({}, "MPICH Version:      5.0.2"),
        ({"PMIX_VERSION": "5.0.1"}, OPEN_MPI_5),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}, OPEN_MPI_5),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x64)"}, OPEN_MPI_5),
        ({"SLURM_MPI_TYPE": "pmi2"}, OPEN_MPI_5),
        ({"SLURM_MPI_TYPE": ""}, OPEN_MPI_5),
    ],
)
def test_what_works_is_left_alone(change: dict[str, str], library: str) -> None:
    assert slurm_pmix_risk({**SRUN_PMIX, **change}, library) is None


def test_ranks_that_believe_to_be_alone_are_told() -> None:
    assert "srun started 6 tasks (SLURM_STEP_NUM_TASKS=6)" in str(singleton_problem(SRUN_NONE, 1))
    assert singleton_problem(SRUN_NONE, 6) is None


def test_plain_python_in_a_batch_script_is_legitimate() -> None:
    assert singleton_problem(BATCH, 1) is None
    assert singleton_problem({}, 1) is None


def test_daemons_of_another_launcher_are_no_ranks() -> None:
    """mpiexec -np 1 in an allocation of two nodes: its proxies came by srun, one per node. Several per node did not."""
    one = {
        "PMI_RANK": "0",
        "PMI_SIZE": "1",
        "MPI_LOCALRANKID": "0",
        "SLURM_STEP_ID": "0",
        "SLURM_NODEID": "0",
    }
    proxies = {**one, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert singleton_problem(proxies, 1) is None
    nested = {**one, "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    assert "srun started 4 tasks" in str(singleton_problem(nested, 1))


def found(libraries: list[str], *ranks: int, size: int = 0) -> str:
    """Say what contradicts itself where the launcher has numbered its tasks so; no ranks: there is no launcher."""
    place = Place("srun", "SLURM_PROCID", None, size or len(ranks), "SLURM_STEP_NUM_TASKS") if ranks else None
    numbers = np.array(ranks or [-1] * len(libraries))
    return str(contradiction(from_list([place] * len(libraries)), from_list(libraries), numbers) or "")


def test_ranks_of_one_number() -> None:
    assert found([OPEN_MPI_5] * 3, 0, 1, 2) == ""
    assert found([OPEN_MPI_5] * 3, 2, 0, 1) == ""  # MPI may number in another order
    assert found([OPEN_MPI_5] * 2) == ""
    problem = found([OPEN_MPI_5] * 3, 0, 1, 1)
    assert "ranks 1 and 2 of MPI are both number 1 for srun (SLURM_PROCID)" in problem
    assert "HPCCOLL_TRUST_MPI=1" in problem


def test_another_number_of_ranks() -> None:
    problem = found([OPEN_MPI_5] * 2, 0, 1, size=64)
    assert "srun started 64 tasks (SLURM_STEP_NUM_TASKS=64), MPI has 2 ranks" in problem


def test_ranks_on_other_libraries() -> None:
    other = OPEN_MPI_5.replace("user@localhost", "somebody@elsewhere")
    assert found([OPEN_MPI_5, other], 0, 1) == ""
    problem = found([OPEN_MPI_5, "MPICH Version:      5.0.2"], 0, 1)
    assert "rank 0 uses Open MPI v5.0.11, rank 1 uses MPICH Version:      5.0.2" in problem


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("OMPI_COMM_WORLD_RANK=0", "ranks 0 and 1 of MPI are both number 0"),
        ("OMPI_COMM_WORLD_SIZE=5", "started 5 tasks (OMPI_COMM_WORLD_SIZE=5), MPI has 2 ranks"),
    ],
)
def test_all_ranks_of_a_real_job_are_told(tmp_path: Path, variable: str, problem: str) -> None:
    """A wrapper that exports what is not its own. Open MPI itself goes by PMIx and sees two ranks."""
    program = tmp_path / "program.py"
    program.write_text(
        "import hpccoll\n"
        "try:\n"
        "    hpccoll.init(verbose=0)\n"
        "except hpccoll.StartError as error:\n"
        "    print('refused:', error, flush=True)\n"
        "hpccoll.init(trust_mpi=True)\n"
        "assert hpccoll.allreduce(1) == 2\n"
    )
    launch = [sys.executable, "-m", "hpccoll", "run", "-np", "2", "--timeout", "100"]
    done = subprocess.run(
        [*launch, "env", variable, sys.executable, str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("refused: ") == 2, done.stdout
    assert done.stdout.count(problem) == 2
    assert "started by mpirun of Open MPI, as OMPI_COMM_WORLD_RANK says" in done.stdout
