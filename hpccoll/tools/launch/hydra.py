# SPDX-License-Identifier: Apache-2.0
"""MPICH and Intel MPI: two launchers named Hydra that hand the whole environment to every rank."""

from pathlib import Path

from hpccoll.tools.launch.job import Job, Plan


def is_mpich(banner: str) -> bool:
    """Whether `mpirun --version` printed the banner of MPICH's Hydra (MVAPICH's has it too)."""
    return "HYDRA build details" in banner


def is_intel(banner: str) -> bool:
    """Whether `mpirun --version` printed Intel MPI's banner."""
    return "Intel(R) MPI Library" in banner


def plan_mpich(job: Job, launcher: str) -> Plan:
    """Bind each rank to its share of the cores; MPICH binds nothing unless told."""
    argv = [launcher, "-np", str(job.ranks)]
    if job.hosts:
        argv += ["-hosts", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    if job.cores_a_rank:
        argv += ["-bind-to", f"core:{job.cores_a_rank}"]
    return Plan((*argv, *job.command), dict(job.exported))


def plan_intel(job: Job, launcher: str) -> Plan:
    """Leave the pinning to Intel MPI, which shares the cores out by itself, unless ranks share cores.

    Its -hosts knows no number of ranks for a host: each host is an argument set (`-n 2 -host h1 X : ...`).
    Its mpirun is a shell script that asks the scheduler; where there is none it would only keep signals from
    the real launcher.
    """
    if not job.allocated:
        launcher = str(Path(launcher).with_name("mpiexec.hydra"))
    sets = [["-n", str(host.slots), "-host", host.name, *job.command] for host in job.hosts]
    sets = sets or [["-n", str(job.ranks), *job.command]]
    words = [word for one in sets for word in (":", *one)][1:]
    sharing = {"I_MPI_PIN": "0"} if job.oversubscribed else {}
    return Plan((launcher, *words), {**job.exported, **sharing})
