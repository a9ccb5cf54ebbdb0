# SPDX-License-Identifier: Apache-2.0
"""Open MPI 4 (ORTE) and 5 (PRRTE), which differ in the options that let ranks share cores."""

import re

from hpccoll.tools.launch.job import Job, Plan


def version(banner: str) -> int | None:
    """Read the major version from what `mpirun --version` printed; None if it is not Open MPI's banner."""
    found = re.search(r"\(Open MPI\) (\d+)\.", banner)
    return int(found[1]) if found else None


def plan(job: Job, launcher: str, major: int) -> Plan:
    """Plan a job for Open MPI: bind each rank to its share of the cores, or to nothing if ranks share cores.

    The plan gives a slot to each rank, because Open MPI counts cores as slots and refuses more ranks. It does not leave
    binding to Open MPI, whose default of one core (up to two ranks) would hold the program's threads and the progress
    thread on one core.

    :param major: the major version of Open MPI
    """
    argv = [launcher, "-np", str(job.ranks)]
    if job.root:
        argv += ["--allow-run-as-root"]
    if job.hosts:
        argv += ["--host", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    elif not job.allocated:
        argv += ["--host", f"localhost:{job.ranks}"]
    if job.cores_per_rank:
        argv += ["--map-by", f"slot:PE={job.cores_per_rank}", "--bind-to", "core"]
    else:
        argv += ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"] if major >= 5 else []
        argv += ["--oversubscribe", "--bind-to", "none"] if major < 5 else []
    if job.output:
        argv += ["--output", f"dir={job.output}"] if major >= 5 else ["--output-filename", job.output]
    argv += job.launcher_options
    for name in sorted(job.exported):
        argv += ["-x", name]
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1"} if job.oversubscribed else {}
    return Plan((*argv, *job.command), {**job.exported, **yielding})
