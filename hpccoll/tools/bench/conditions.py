# SPDX-License-Identifier: Apache-2.0
"""The conditions of a measurement: facts that are stored with the results, and reasons to refuse them.

It refuses ranks that run alone, more ranks than processors, and ranks with different builds. Less severe conditions
become warnings, which are stored with the results.
"""

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import numpy as np

import hpccoll
from hpccoll import _core, detect, inherited
from hpccoll.checks import cgroups
from hpccoll.launch_protocol import LAUNCHER
from hpccoll.text import parse_ranges, ranges, some_ranks
from hpccoll.tools.bench.results import Facts, ResultsError

KEPT = ("HPCCOLL_", "OMPI_", "PMIX_", "PRTE_", "MPICH_", "I_MPI_", "UCX_", "FI_", "NCCL_", "HOROVOD_", "OMP_", "MKL_",
        "OPENBLAS_", "SLURM_", "LSB_", "PBS_", "CUDA_VISIBLE", "GLOO_")  # fmt: skip
"""Variables that can change a result."""
SECRETS = ("SECRET", "TOKEN", "KEY", "PASSWORD", "COOKIE", "NONCE")
JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "JOB_ID")
LOADED = 0.5
"""Load average, before the ranks begin, as a share of the processors, from which on a machine is called loaded."""


def of_rank() -> Facts:
    """Return the facts that differ between ranks, as JSON values."""
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "cpus": ranges(os.sched_getaffinity(0)),
        "quota": cgroups.quota(),
        "load": os.getloadavg()[0],
        "hpccoll": hpccoll.__version__,
        "build": build(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def build() -> str:
    """Name the build of hpccoll: the first digits of the hash of its core."""
    return hashlib.sha256(Path(str(_core.__file__)).read_bytes()).hexdigest()[:12]


def of_job(environment: Mapping[str, str], settings: Mapping[str, object], words: list[str]) -> Facts:
    """Return the facts of rank 0 for all: command, machine, launcher, versions, knobs, variables."""
    place = detect.place(environment)
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": " ".join(words),
        "hpccoll": hpccoll.__version__,
        "build": build(),
        "revision": revision(),
        "launcher": place.launcher if place else "",
        "job": next((environment[name] for name in JOBS if environment.get(name)), ""),
        "machine": machine(),
        "packages": versions(),
        "knobs": dict(settings),
        "environment": variables(environment),
    }


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that can change a result, without secrets and addresses of this job's processes."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(KEPT) and name != LAUNCHER and not any(word in name for word in SECRETS)
    }


def revision() -> str:
    """Return the revision of the checkout that hpccoll runs from; "" for an installed package."""
    folder = Path(hpccoll.__file__).parent
    if not (folder.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def machine() -> Facts:
    """Return the machine of rank 0."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "cpu\t"))]
    memory = Path("/proc/meminfo").read_text().split()[1]
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "processor": models[0] if models else platform.machine(),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "memory GiB": round(int(memory) / 2**20, 1),
        "governor": governor.read_text().strip() if governor.exists() else "",
        "load average": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Return the versions of all components, and the library of MPI."""
    found = {"Python": platform.python_version()}
    for name in ("hpccoll", "numpy", "mpi4py", "torch", "horovod", "ml_dtypes", "h5py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if mpi := sys.modules.get("mpi4py.MPI"):
        found["MPI"] = str(mpi.Get_library_version()).split("\n")[0].strip("\0 ")
    return found


def crowded(reports: list[Facts]) -> dict[str, tuple[int, int]]:
    """Find the hosts with more ranks than processors that these may use: host -> (ranks, processors)."""
    found = {}
    for host in dict.fromkeys(report["host"] for report in reports):
        ranks = [report for report in reports if report["host"] == host]
        cpus = len({cpu for report in ranks for cpu in parse_ranges(report["cpus"])})
        if ranks[0]["quota"]:
            cpus = min(cpus, max(1, int(ranks[0]["quota"])))
        if len(ranks) > cpus:
            found[host] = (len(ranks), cpus)
    return found


def loaded(host: str, load: float, cpus: int) -> str:
    """Return the warning for a host that other processes used; "" for an idle host."""
    text = f"{host} was loaded before the ranks began: load average {load:.1f} on {cpus} processors"
    return text if load > LOADED * cpus else ""


def judge(reports: list[Facts], expected: int, oversubscribed: bool) -> list[str]:
    """Check the reports of all ranks, with the same result on each of them.

    :param expected: the required number of ranks; 0: not given
    :param oversubscribed: the user wants more ranks than processors
    :returns: warnings, which are stored with the results
    :raises ResultsError: results of these ranks would be worthless
    """
    if expected and len(reports) != expected:
        alone = "each rank believes to be alone" if len(reports) == 1 else f"a World of {len(reports)} ranks was made"
        raise ResultsError(
            f"{expected} ranks were started, but {alone}: launcher and MPI do not fit together (`hpccoll doctor`)"
        )
    for name in ("hpccoll", "build", "python"):
        values: dict[str, list[int]] = {}
        for rank, report in enumerate(reports):
            values.setdefault(str(report[name]), []).append(rank)
        if len(values) > 1:
            each = "; ".join(f"{value} on {some_ranks(ranks)}" for value, ranks in values.items())
            raise ResultsError(f"the ranks run different versions of {name}: {each}")
    crowd = crowded(reports)
    if crowd and not oversubscribed:
        host, (count, cpus) = next(iter(crowd.items()))
        raise ResultsError(
            f"{count} ranks on {cpus} processors of {host}: ranks that wait for a processor measure the kernel's "
            "scheduler. Start fewer ranks, or say --oversubscribed if this is meant; the results are then marked"
        )
    warnings = [f"oversubscribed: {n} ranks on {cpus} processors of {host}" for host, (n, cpus) in crowd.items()]
    loads = {r["host"]: (r["load"], os.cpu_count() or 1) for r in reports}
    warnings += [text for host, (load, cpus) in loads.items() if (text := loaded(host, load, cpus))]
    if len(reports) == 1:
        warnings.append("a single rank: nothing was communicated")
    return warnings


def knobs(world: hpccoll.World) -> Facts:
    """Return the knobs of a World, without those that hold a secret."""
    return {name: value for name, value in asdict(world.base.settings).items() if isinstance(value, str | int | float)}


def environment() -> Mapping[str, str]:
    """Return the variables of this process."""
    return inherited.environment()
