# SPDX-License-Identifier: Apache-2.0
"""Open MPI 4 (ORTE) and 5 (PRRTE): the options differ in how sharing of cores is allowed."""

import re

from hpccoll.tools.launch.job import Job, Plan


def version(banner: str) -> int | None:
    """The major version, if `mpirun --version` printed Open MPI's banner."""
    found = re.search(r"\(Open MPI\) (\d+)\.", banner)
    return int(found[1]) if found else None


def plan(job: Job, launcher: str, major: int) -> Plan:
    """Give the ranks slots of their own, bind each to its share of the cores, or to nothing if they share.

    Slots are named here: Open MPI counts cores by itself and refuses more ranks. A rank computes and drives,
    so the default of one core (up to two ranks) would make the two of them wait for each other.
    """
    argv = [launcher, "-np", str(job.ranks)]
    if job.root:
        argv += ["--allow-run-as-root"]
    if job.hosts:
        argv += ["--host", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    elif not job.allocated:
        argv += ["--host", f"localhost:{job.ranks}"]
    if job.cores_a_rank:
        argv += ["--map-by", f"slot:PE={job.cores_a_rank}", "--bind-to", "core"]
    else:
        argv += ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"] if major >= 5 else []
        argv += ["--oversubscribe", "--bind-to", "none"] if major < 5 else []
    for name in sorted(job.exported):
        argv += ["-x", name]
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1"} if job.oversubscribed else {}
    return Plan((*argv, *job.command), {**job.exported, **yielding})
