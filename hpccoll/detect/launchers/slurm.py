# SPDX-License-Identifier: Apache-2.0
"""Slurm: srun, and the job around it.

Source: "OUTPUT ENVIRONMENT VARIABLES" of srun(1) and sbatch(1); recorded, heterogeneous steps included: in them rank,
node and tasks count over all components.
"""

import dataclasses
from collections.abc import Callable, Mapping

from hpccoll import errors
from hpccoll.detect.hosts import Allocation, expand, expand_counts
from hpccoll.detect.job_place import Place, number, read

ORDER = 60
MOST_COMPONENTS = 4096
"""A heterogeneous job has no more; Slurm allows 128 by default."""


def place(env: Mapping[str, str]) -> Place | None:
    """Read the place of this process in its step; a batch script has the allocation's variables, but no step."""
    if number(env, "SLURM_STEP_ID") is None:
        return None
    found = read(
        "srun", env, rank="SLURM_PROCID", size="SLURM_STEP_NUM_TASKS", local_rank="SLURM_LOCALID",
        node="SLURMD_NODENAME", job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
        detail=f"--mpi={env.get('SLURM_MPI_TYPE', 'none')}",
    )  # fmt: skip
    try:
        counts = expand_counts(env["SLURM_STEP_TASKS_PER_NODE"]) if env.get("SLURM_STEP_TASKS_PER_NODE") else []
    except errors.InvalidArgumentError:
        counts = []  # the launcher does not say it in a way that is known
    node = number(env, "SLURM_NODEID")
    if not found or node is None or node >= len(counts):
        return found
    return dataclasses.replace(found, local_size=counts[node], daemons=set(counts) == {1})


def allocation(env: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
    """Read the job's hosts; of all components of a heterogeneous job, where the batch script's variables are set."""
    del read_file
    if "SLURM_JOB_ID" not in env or "SLURM_JOB_NODELIST" not in env:
        return None
    components = min(number(env, "SLURM_HET_SIZE") or 0, MOST_COMPONENTS)
    ends = [f"_HET_GROUP_{i}" for i in range(components) if f"SLURM_JOB_NODELIST_HET_GROUP_{i}" in env] or [""]
    hosts, slots = [], []
    for end in ends:
        hosts += expand(env[f"SLURM_JOB_NODELIST{end}"])
        slots += expand_counts(env[name]) if (name := f"SLURM_TASKS_PER_NODE{end}") in env else []
    whole = len(slots) == len(hosts)  # inside a step the variable counts the tasks of the step
    return Allocation("Slurm", env["SLURM_JOB_ID"], tuple(hosts), tuple(slots) if whole else ())
