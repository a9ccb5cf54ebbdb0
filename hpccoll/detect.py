# SPDX-License-Identifier: Apache-2.0
"""What the launcher says about this process: how many tasks it started in the job step.

A launcher that speaks another process-management protocol than the MPI library starts N processes that each
believe to be alone. N training runs that overwrite each other's files are worse than an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["singleton_remedy", "slurm_pmix_risk", "tasks"]

# What sets it is in the step itself, not in the batch script around it, where plain Python is legitimate.
_TASKS = {
    "SLURM_STEP_NUM_TASKS": "srun",
    "JSM_NAMESPACE_SIZE": "jsrun",
    "OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun",
    "PMI_SIZE": "mpiexec (Hydra) or a PMI launcher",
    "PALS_NRANKS": "PALS mpiexec",
}


def tasks(env: Mapping[str, str]) -> int:
    """Tasks of the job step that a launcher of MPI jobs started this process in; 0: none did."""
    found = [env[name] for name in _TASKS if name in env and not _is_batch_step(env, name)]
    return max((int(number) for number in found if number.isdigit()), default=0)


def singleton_remedy(env: Mapping[str, str], size: int) -> str:
    """Return "" if a World of `size` ranks fits what the launcher says, else what is wrong and what to do."""
    if size > 1:
        return ""
    for name, launcher in _TASKS.items():
        count = env.get(name, "")
        if count.isdigit() and int(count) > 1 and not _is_batch_step(env, name):
            return (
                f"{launcher} started {count} tasks ({name}={count}) but MPI says that this process is alone: mpi4py's "
                "MPI library and the launcher do not speak the same protocol. Start the job with the mpirun of that "
                "MPI library (`hpccoll run` does), or under Slurm with a matching `srun --mpi=...` (`srun --mpi=list` "
                "shows what there is). If a World of one rank is meant, set HPCCOLL_ALLOW_SINGLETON=1."
            )
    return ""


def _is_batch_step(env: Mapping[str, str], name: str) -> bool:
    """Slurm gives a batch script the variables of the allocation, but no step of its own."""
    return name.startswith("SLURM") and not env.get("SLURM_STEP_ID", "").isdigit()


def slurm_pmix_risk(env: Mapping[str, str], library: str) -> str:
    """Return "" unless MPI_Init is likely to fail in this step of Slurm; else what to do should it fail.

    Open MPI 5 brings a PMIx 5 client, which in some installations does not learn from the PMIx 4 server of an
    older Slurm how many ranks its node has, and then refuses local rank 2 and above. Other installations with the
    same versions work, so this is said and not enforced. `library` is MPI_Get_library_version's text.
    """
    server = re.match(r"[34]\.[\d.]+", env.get("PMIX_VERSION", ""))
    tasks = [int(n) for n in re.findall(r"(?:^|,)(\d+)", env.get("SLURM_STEP_TASKS_PER_NODE", ""))]
    under_pmix = env.get("SLURM_MPI_TYPE", "").startswith("pmix")
    if not (under_pmix and server and max(tasks, default=0) >= 3 and library.startswith("Open MPI v5")):
        return ""
    return (
        f"Open MPI 5 under srun with Slurm's PMIx {server[0]} and {max(tasks)} ranks a node: with some installations "
        "MPI_Init fails here. If it does: start the job with mpirun inside the allocation (`hpccoll run` does), use "
        "Open MPI 4.1, or at most 2 ranks a node"
    )
