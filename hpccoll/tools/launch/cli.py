# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll run`: turns arguments into a Job, the Job into a Plan, and executes it."""

import argparse
import dataclasses
import os
import secrets
import shlex
import sys
from collections.abc import Mapping

from hpccoll import config
from hpccoll.tools.launch import installed, processes
from hpccoll.tools.launch.job import Host, Job, LaunchError, Plan, fill_hosts, parse_hosts

ALLOCATIONS = {
    "SLURM_JOB_ID": "Slurm",
    "LSB_JOBID": "LSF",
    "PBS_NODEFILE": "PBS",
    "PE_HOSTFILE": "Grid Engine",
}
EVERYWHERE = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_NUM_THREADS"}
"""Variables that ranks on other hosts need as well, beside those that begin with HPCCOLL_."""
TIMED_OUT = 124
"""Exit status of a job that --timeout ended, as timeout(1) gives it."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll run`."""
    parser = commands.add_parser(
        "run",
        help="start a job on this machine or on hosts, with the installed mpirun",
        usage="hpccoll run -np N [options] COMMAND [ARGUMENT ...]",
    )
    parser.add_argument("-np", "-n", dest="ranks", type=int, help="how many ranks (default: what the hosts take)")
    parser.add_argument("-H", "--hosts", metavar="h1:2,h2:2", help="hosts, and how many ranks each takes")
    parser.add_argument(
        "--nodes", metavar="N", help="let the ranks of this machine act as N nodes, or as nodes of 3+1 ranks"
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end the job after so long (status 124)")
    parser.add_argument(
        "-x",
        dest="variables",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set a variable in all ranks",
    )
    parser.add_argument("--launcher", help="mpirun or mpiexec to use (default: this environment's, then PATH's)")
    parser.add_argument("--show", action="store_true", help="print the command and do not run it")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="python train.py ...")
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Run the job.

    :returns: the exit status of the job; 124 after --timeout, 2 if the job cannot be started as asked
    """
    environment = dict(config.environment())
    environment["PATH"] = path_with_this_python(environment.get("PATH", os.defpath))
    try:
        job = make_job(arguments, environment)
        if not arguments.show:
            job = with_secret(job)
        launcher = installed.find_launcher(environment["PATH"], arguments.launcher)
        plan = installed.plan(job, launcher, installed.banner_of(launcher, environment))
    except LaunchError as error:
        processes.say(str(error))
        return 2
    if arguments.show:
        print(shown(plan))
        return 0
    ending = processes.run(plan.argv, {**environment, **plan.environment}, arguments.timeout)
    return report(ending, arguments.timeout)


def make_job(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Job:
    """Make the job from the arguments.

    :raises LaunchError: the arguments contradict each other
    """
    command = tuple(arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command)
    if not command:
        raise LaunchError("which program? hpccoll run -np 4 python train.py")
    if arguments.timeout is not None and arguments.timeout <= 0:
        raise LaunchError(f"--timeout {arguments.timeout:g}: more than 0 seconds")
    ranks, hosts = fill_hosts(arguments.ranks, parse_hosts(arguments.hosts) if arguments.hosts else ())
    exported = chosen_variables(arguments.variables, environment)
    if arguments.nodes is not None:
        exported["HPCCOLL_NODES"] = checked_nodes(arguments.nodes, ranks, hosts)
    if hosts:
        wanted = {n for n in environment if n in EVERYWHERE or n.startswith("HPCCOLL_")} - {config.SECRET}
        exported = {n: environment[n] for n in sorted(wanted)} | exported
    return Job(
        ranks=ranks,
        command=command,
        hosts=hosts,
        exported=exported,
        cores=installed.cores(),
        allocated=any(name in environment for name in ALLOCATIONS),
        root=os.geteuid() == 0,
    )


def with_secret(job: Job) -> Job:
    """Give all ranks of a job a word that nobody else has. It travels in their environment, never in an argument."""
    return dataclasses.replace(job, exported={**job.exported, config.SECRET: secrets.token_hex(32)})


def checked_nodes(nodes: str, ranks: int, hosts: tuple[Host, ...]) -> str:
    """Check that the job can be split into `nodes`, a number of nodes ("2") or the ranks of each ("3+1").

    :returns: `nodes`
    :raises LaunchError: the job cannot be split so
    """
    counts = [int(part) if part.isdecimal() and len(part) < 10 else 0 for part in nodes.split("+")]
    fits = sum(counts) == ranks if len(counts) > 1 else counts[0] <= ranks
    if len(hosts) > 1 or min(counts) < 1 or not fits:
        allowed = f"1 to {ranks}, or numbers of ranks like 3+1 whose sum is {ranks}, on one machine"
        raise LaunchError(f"--nodes {nodes}: {allowed}")
    return nodes


def chosen_variables(settings: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Read `-x NAME=VALUE`, or `-x NAME` for the value that NAME has in `environment`.

    :raises LaunchError: NAME is not set
    """
    chosen = {}
    for setting in settings:
        name, given, value = setting.partition("=")
        if not given and name not in environment:
            raise LaunchError(f"-x {name}: {name} is not set here; give -x {name}=VALUE")
        chosen[name] = value if given else environment[name]
    return chosen


def path_with_this_python(path: str) -> str:
    """Put this environment's programs first in PATH: the `python` that has hpccoll, the mpirun of its MPI."""
    programs = os.path.join(sys.prefix, "bin")
    return path if programs in path.split(os.pathsep) else os.pathsep.join((programs, path))


def shown(plan: Plan) -> str:
    """Write the command as one could type it."""
    return shlex.join(["env", *(f"{n}={v}" for n, v in plan.environment.items()), *plan.argv])


def report(ending: processes.Ending, timeout: float | None) -> int:
    """Print what the launcher itself had to do.

    :returns: the exit status of `hpccoll run`
    """
    if ending.left_behind:
        processes.say(f"killed {ending.left_behind} processes that outlived mpirun")
    if ending.timed_out:
        processes.say(f"the job had not ended after {timeout:g} s (--timeout) and was ended")
        return TIMED_OUT
    if ending.left_behind and not ending.status:
        processes.say("mpirun ended with status 0, but ranks were still running: Open MPI 5 does so if a node fails")
        return 1
    if ending.status:
        processes.say(f"the job ended with status {ending.status}")
    return ending.status
