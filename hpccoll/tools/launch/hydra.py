# SPDX-License-Identifier: Apache-2.0
"""MPICH and Intel MPI: two launchers named Hydra, which pass the whole environment to every rank."""

from pathlib import Path

from hpccoll.tools.launch.job import Job, Plan


def is_mpich(banner: str) -> bool:
    """Return whether `mpirun --version` printed the banner of MPICH's Hydra (MVAPICH prints the same)."""
    return "HYDRA build details" in banner


def is_intel(banner: str) -> bool:
    """Return whether `mpirun --version` printed Intel MPI's banner."""
    return "Intel(R) MPI Library" in banner


def plan_mpich(job: Job, launcher: str) -> Plan:
    """Plan a job for MPICH: bind each rank to its share of the cores, as MPICH itself binds nothing by default."""
    argv = [launcher, "-np", str(job.ranks)]
    if job.hosts:
        argv += ["-hosts", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    if job.cores_per_rank and not job.binding_options:
        argv += ["-bind-to", f"core:{job.cores_per_rank}"]
    return Plan((*argv, *output(job), *job.launcher_options, *job.command), dict(job.exported), job.defaults)


def output(job: Job) -> list[str]:
    """Return the options for files of each rank's output."""
    if not job.output:
        return []
    return ["-outfile-pattern", f"{job.output}/rank.%r.stdout", "-errfile-pattern", f"{job.output}/rank.%r.stderr"]


def plan_intel(job: Job, launcher: str) -> Plan:
    """Plan a job for Intel MPI, which binds the ranks by itself; pinning is off where ranks share cores.

    Its -hosts takes no number of ranks per host, so each host is an argument set (`-n 2 -host h1 X : ...`). Its mpirun
    is a shell script that asks the scheduler; without a scheduler the script would only keep signals from the real
    launcher, which is called directly then.
    """
    if not job.allocated:
        launcher = str(Path(launcher).with_name("mpiexec.hydra"))
    sets = [["-n", str(host.slots), "-host", host.name, *job.command] for host in job.hosts]
    sets = sets or [["-n", str(job.ranks), *job.command]]
    words = [*output(job), *job.launcher_options, *[word for argument_set in sets for word in (":", *argument_set)][1:]]
    sharing = {"I_MPI_PIN": "0"} if job.oversubscribed else {}
    return Plan((launcher, *words), {**job.exported, **sharing}, job.defaults)
