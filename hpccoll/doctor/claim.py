# SPDX-License-Identifier: Apache-2.0
"""Which rank the launcher says this is, read from the environment: all there is to go by before MPI is up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LAUNCHERS = (
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", ("LSB_JOBID", "JSM_JSRUN_NO_WARN_OVERSUBSCRIBE")),
    ("PALS", "PALS_RANKID", "PALS_NRANKS", ("PALS_APID",)),
    ("mpiexec of Hydra", "PMI_RANK", "PMI_SIZE", ("PMI_ID_OF_JOB",)),
)


@dataclass(frozen=True)
class Claim:
    """What the launcher says."""

    launcher: str
    rank: int
    size: int
    key: str
    """Equal on the ranks of this job step and on no others'; "" where the launcher gives none."""


def read(env: Mapping[str, str]) -> Claim:
    """The first launcher that numbers its processes; a process on its own is rank 0 of 1."""
    for launcher, rank, size, keys in _LAUNCHERS:
        step = env.get("SLURM_STEP_ID", "")
        if launcher == "srun" and not step.isdigit():
            continue  # a batch script has the variables of the allocation but no step of its own
        if env.get(rank, "").isdigit() and env.get(size, "").isdigit():
            words = [env[key] for key in keys if env.get(key)]
            return Claim(launcher, int(env[rank]), int(env[size]), "-".join(words))
    return Claim("", 0, 1, "")
