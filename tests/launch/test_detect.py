# SPDX-License-Identifier: Apache-2.0
"""What the environment of a job step gives away: recorded from Slurm 22.05.8 (three ranks on each of two nodes)."""

import pytest

from hpccoll.detect import singleton_remedy, slurm_pmix_risk

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
SRUN_NONE = {
    name: value for name, value in SRUN_PMIX.items() if "PMIX" not in name and name != "SLURM_MPI_TYPE"
}
BATCH = {"SLURM_JOB_ID": "3", "SLURM_NTASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "1"}
OPEN_MPI_5 = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"


def test_old_pmix_and_three_ranks_a_node_is_said_before_mpi_starts() -> None:
    said = slurm_pmix_risk(SRUN_PMIX, OPEN_MPI_5)
    assert "Slurm's PMIx 4.2.2 and 3 ranks a node" in said
    assert "hpccoll run" in said


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
    assert slurm_pmix_risk({**SRUN_PMIX, **change}, library) == ""


def test_ranks_that_believe_to_be_alone_are_told() -> None:
    assert "srun started 6 tasks (SLURM_STEP_NUM_TASKS=6)" in singleton_remedy(SRUN_NONE, 1)
    assert singleton_remedy(SRUN_NONE, 6) == ""


def test_plain_python_in_a_batch_script_is_legitimate() -> None:
    assert singleton_remedy(BATCH, 1) == ""
    assert singleton_remedy({}, 1) == ""
