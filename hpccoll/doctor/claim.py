# SPDX-License-Identifier: Apache-2.0
"""Which rank the launcher says this is, read from the environment: all there is to go by before MPI is up."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_HYDRA = "mpiexec of Hydra"
_LAUNCHERS = (
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", ("LSB_JOBID", "JSM_NAMESPACE_ID")),
    ("PALS", "PALS_RANKID", "PALS_NRANKS", ("PALS_APID",)),
    (_HYDRA, "PMI_RANK", "PMI_SIZE", ()),
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
        if launcher == "srun" and not env.get("SLURM_STEP_ID", "").isdigit():
            continue  # a batch script has the variables of the allocation but no step of its own
        if env.get(rank, "").isdigit() and env.get(size, "").isdigit():
            key = "-".join(env[key] for key in keys if env.get(key))
            return Claim(launcher, int(env[rank]), int(env[size]), key or _port_of_hydra())
    return Claim("", 0, 1, "")


def _port_of_hydra(proc: Path = Path("/proc")) -> str:
    """Where the proxies of MPICH and Intel MPI connect to, from the command line of the one above this process."""
    pid = os.getppid()
    try:
        while pid > 1:
            command = (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if found := re.search(r"--(?:control-port|upstream-port) (\S+)", command):
                return found[1]
            pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass
    return ""
