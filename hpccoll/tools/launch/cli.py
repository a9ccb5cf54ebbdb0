# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll run`: turns arguments into a Job, the Job into a Plan, and executes it."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from hpccoll import inherited
from hpccoll.channel import new_secret
from hpccoll.launch_protocol import COORDINATOR, LAUNCHER, STORE, WORKER
from hpccoll.tools.kin import end_with_parent
from hpccoll.tools.launch import habits, installed, limits, openmpi, processes
from hpccoll.tools.launch.allocation import allocation_of, is_outside, ranks_of
from hpccoll.tools.launch.direct import plan as direct
from hpccoll.tools.launch.direct.places import variables_of_ranks
from hpccoll.tools.launch.elastic import options as elastic
from hpccoll.tools.launch.function import CALLER
from hpccoll.tools.launch.job import (
    Host,
    Job,
    LaunchError,
    Plan,
    fill_hosts,
    parse_hosts,
    read_hostfile,
    split_words,
)
from hpccoll.tools.launch.listener import addresses_towards
from hpccoll.tools.launch.ranks import Rank, Ranks
from hpccoll.tools.launch.standard_input import source

ALLOCATIONS = {
    "SLURM_JOB_ID": "Slurm",
    "LSB_JOBID": "LSF",
    "PBS_NODEFILE": "PBS",
    "PE_HOSTFILE": "Grid Engine",
}
OF_A_RANK = {LAUNCHER, STORE, COORDINATOR, WORKER, *variables_of_ranks([0], "", "a launcher")[0]}
"""Variables of a rank that runs this command: the job that it starts is another one."""
EVERYWHERE = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_NUM_THREADS"}
"""Variables that ranks on other hosts need as well, beside those that begin with HPCCOLL_."""
TIMED_OUT = 124
"""Exit status of a job that --timeout ended, as timeout(1) gives it."""
MOST_WATCHED = 512
"""Ranks of the largest job that keep a connection to `hpccoll run`: each takes a file and a thread."""
MOST_NAMED = 8
"""Number of lost ranks that are printed on separate lines."""
SETTLED = 12.0
"""Seconds after the end of mpirun in which a rank's connection closes, also that of a host that does not answer."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll run`."""
    parser = commands.add_parser(
        "run",
        help="start a job on this machine or on hosts, with the installed mpirun",
        usage="hpccoll run -np N [options] COMMAND [ARGUMENT ...]",
        allow_abbrev=False,  # an abbreviation may be an option of the program
    )
    parser.add_argument(
        "-np",
        "-n",
        dest="ranks",
        type=int,
        help="how many ranks (default: what the hosts take, or the slots of the scheduler's allocation)",
    )
    parser.add_argument("-H", "--hosts", metavar="h1:2,h2:2", help="hosts, and how many ranks each takes")
    parser.add_argument("--hostfile", metavar="FILE", help="hosts, one per line: `h1 slots=2`, `h1:2` or `h1`")
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
    parser.add_argument("--output", metavar="DIR", help="write what each rank prints into files of this folder")
    parser.add_argument(
        "--launcher-options", default="", metavar="WORDS", help="more options for mpirun, as --launcher-options='-v'"
    )
    parser.add_argument(
        "--launcher",
        help="mpirun or mpiexec to use (default: this environment's, then PATH's); ssh: start the ranks without MPI, "
        "which is the default where there is no mpirun",
    )
    parser.add_argument("--show", action="store_true", help="print the command and do not run it")
    elastic.add_arguments(parser)
    habits.refuse(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="python train.py ...")
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Run the job.

    :returns: the exit status of the job; 124 after --timeout, 2 if the job cannot be started as asked
    """
    if CALLER in inherited.environment():  # the ranks have nobody to give their results to when it has ended
        end_with_parent(signal.SIGTERM)
    environment = {name: value for name, value in inherited.environment().items() if name not in OF_A_RANK}
    environment["PATH"] = path_with_this_python(environment.get("PATH", os.defpath))
    try:
        with limits.named():
            return start(arguments, environment)
    except LaunchError as error:
        processes.say(str(error))
        return 2


def start(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the job in this environment.

    :raises LaunchError: the job cannot be started as asked
    """
    check(arguments)
    if elastic.is_asked_for(arguments):
        return run_elastic(arguments, environment)
    if unused := elastic.without_effect(arguments):
        processes.say(f"{', '.join(unused)}: without effect, as the job is not elastic; --min-np makes it so")
    job = make_job(arguments, environment)
    if not arguments.show:
        job = replace(job, exported={**job.exported, inherited.SECRET: new_secret()})  # never in an argument
    plan_of = planner(arguments.launcher, environment)
    if arguments.show:
        print(shown(plan_of(job), environment))
        return 0
    with openmpi.own_session_folder(environment) as environment_of_mpirun:
        return execute(job, plan_of, environment_of_mpirun, arguments.timeout)


def check(arguments: argparse.Namespace) -> None:
    """Check what does not depend on other arguments, and make the folder for the output: mpirun would lose the output.

    :raises LaunchError: an argument makes no sense
    """
    for option in ("hosts", "hostfile", "output", "launcher", "host_discovery_script"):
        if getattr(arguments, option) == "":
            raise LaunchError(f"--{option.replace('_', '-')}: its value is empty")
    if arguments.timeout is not None and not arguments.timeout > 0:
        raise LaunchError(f"--timeout {arguments.timeout:g}: more than 0 seconds")
    elastic.check(arguments)
    try:
        os.getcwd()
    except OSError as error:  # removed since it was entered; the ranks would begin in it
        raise LaunchError(f"the current folder is not there: {error.strerror}") from None
    if arguments.output and not arguments.show:
        try:
            os.makedirs(arguments.output, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"--output {arguments.output}: {error.strerror}") from None
        if not os.access(arguments.output, os.W_OK | os.X_OK):
            raise LaunchError(f"--output {arguments.output}: no file can be made in this folder")


def planner(named: str | None, environment: Mapping[str, str]) -> Callable[[Job], Plan]:
    """Choose the launcher: an mpirun, or hpccoll's own launcher on request or if there is no mpirun.

    :param named: the launcher that the user named
    :raises LaunchError: the named launcher does not exist, or its family is unknown
    """
    if named == direct.NAME:
        return direct.plan
    try:
        launcher = installed.find_launcher(environment["PATH"], named)
    except LaunchError as error:
        if named:
            raise
        processes.say(f"{error}: the ranks are started without MPI (--launcher {direct.NAME})")
        return direct.plan
    return partial(installed.plan, launcher=launcher, banner=installed.banner_of(launcher, environment))


def execute(job: Job, plan_of: Callable[[Job], Plan], environment: Mapping[str, str], timeout: float | None) -> int:
    """Run a job whose ranks keep a connection to this process.

    :returns: the exit status of `hpccoll run`
    :raises LaunchError: the launcher's family is unknown
    """
    if job.ranks > MOST_WATCHED:
        processes.say(f"{job.ranks} ranks: mpirun alone watches them, hpccoll run does so for {MOST_WATCHED} at most")
        plan = plan_of(job)
        return report(
            processes.run(plan.argv, plan.environment_from(environment), timeout, ranks=job.ranks), timeout, {}
        )
    ranks = Ranks(job.ranks, addresses_towards(job.reached, needed=False))
    with ranks.listener as listener:
        plan = plan_of(replace(job, exported={**job.exported, LAUNCHER: listener.variable}))
        ending = processes.run(plan.argv, plan.environment_from(environment), timeout, ranks.have_ended, job.ranks)
        unfinished = ranks.unfinished(SETTLED) if needs_ranks(ending) else {}
        all_well = ranks.have_ended() and not unfinished
    return report(ending, timeout, unfinished, all_well=all_well)


def make_job(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Job:
    """Make the job from the arguments.

    :raises LaunchError: the arguments contradict each other
    """
    command = chosen_command(arguments)
    allocation = allocation_of(environment)
    wanted_ranks = arguments.ranks
    if wanted_ranks is None and allocation and not (arguments.hosts or arguments.hostfile):
        wanted_ranks = ranks_of(allocation, environment)
        processes.say(f"{wanted_ranks} ranks, one per slot of {allocation}")
    ranks, hosts = fill_hosts(wanted_ranks, chosen_hosts(arguments))
    exported = chosen_variables(arguments.variables, environment)
    if arguments.nodes is not None:
        exported["HPCCOLL_NODES"] = checked_nodes(arguments.nodes, ranks, hosts)
    if hosts:
        wanted = {n for n in environment if n in EVERYWHERE or n.startswith("HPCCOLL_")} - {inherited.SECRET}
        exported = {n: environment[n] for n in sorted(wanted)} | exported
    return Job(
        ranks=ranks,
        command=command,
        hosts=hosts,
        path=environment["PATH"],
        exported=exported,
        cores=installed.cores(),
        allocated=any(name in environment for name in ALLOCATIONS),
        reached=tuple(host.name for host in hosts) or (allocation.hosts if allocation else ()),
        outside=is_outside(allocation, environment),
        root=os.geteuid() == 0,
        output=os.path.abspath(arguments.output) if arguments.output else "",
        input=None if arguments.show else source(),
        launcher_options=split_words("--launcher-options", arguments.launcher_options),
    )


def run_elastic(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run an elastic job.

    :returns: the exit status of `hpccoll run`
    :raises LaunchError: the job cannot be started as asked
    """
    from hpccoll.tools.launch.elastic import job  # other jobs start sooner without it

    hosts, way = {host.name: host.slots for host in chosen_hosts(arguments)}, "ssh"
    allocation = allocation_of(environment)
    if allocation and allocation.scheduler == "Slurm":
        way = "srun"
        if not hosts and not arguments.host_discovery_script:
            hosts = dict.fromkeys(allocation.hosts, arguments.slots_per_host)
            processes.say(f"{arguments.slots_per_host} ranks at most on each host of {allocation} (--slots-per-host)")
    chosen = chosen_variables(arguments.variables, environment)
    wanted = {n for n in environment if n in EVERYWHERE or n.startswith("HPCCOLL_")} - {inherited.SECRET}
    exported = {n: environment[n] for n in sorted(wanted)} | chosen
    return job.run(arguments, chosen_command(arguments), hosts, {**environment, **chosen}, exported, way)


def chosen_command(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Read the program and its arguments.

    :raises LaunchError: there is none
    """
    command = tuple(arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command)
    if not command or not command[0]:
        raise LaunchError("which program? hpccoll run -np 4 python train.py")
    return command


def chosen_hosts(arguments: argparse.Namespace) -> tuple[Host, ...]:
    """Read the hosts of -H, or of --hostfile.

    :raises LaunchError: both are given, or one of them cannot be read
    """
    if arguments.hosts and arguments.hostfile:
        raise LaunchError("-H and --hostfile: give one of them")
    if arguments.hostfile:
        return read_hostfile(arguments.hostfile)
    return parse_hosts(arguments.hosts) if arguments.hosts else ()


def checked_nodes(nodes: str, ranks: int, hosts: tuple[Host, ...]) -> str:
    """Check that the job can be split into `nodes`, a number of nodes ("2") or the ranks of each ("3+1").

    :returns: `nodes`
    :raises LaunchError: it cannot
    """
    counts = [int(part) if part.isdecimal() and len(part) < 10 else 0 for part in nodes.split("+")]
    fits = sum(counts) == ranks if len(counts) > 1 else counts[0] <= ranks
    if len(hosts) > 1 or min(counts) < 1 or not fits:
        allowed = f"1 to {ranks}, or numbers of ranks like 3+1 whose sum is {ranks}, on one machine"
        raise LaunchError(f"--nodes {nodes}: {allowed}")
    return nodes


def chosen_variables(settings: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Read `-x NAME=VALUE`, or `-x NAME` for the value that NAME has in `environment`.

    :raises LaunchError: NAME is empty, or not set
    """
    chosen = {}
    for setting in settings:
        name, given, value = setting.partition("=")
        if not name:
            raise LaunchError(f"-x {setting!r}: give -x NAME or -x NAME=VALUE")
        if not given and name not in environment:
            raise LaunchError(f"-x {name}: {name} is not set here; give -x {name}=VALUE")
        chosen[name] = value if given else environment[name]
    return chosen


def path_with_this_python(path: str) -> str:
    """Put this environment's programs first in PATH: the `python` that has hpccoll, the mpirun of its MPI."""
    programs = os.path.join(sys.prefix, "bin")
    return path if programs in path.split(os.pathsep) else os.pathsep.join((programs, path))


def shown(plan: Plan, environment: Mapping[str, str]) -> str:
    """Write the command for a shell that has this environment."""
    defaults = {name: value for name, value in plan.defaults.items() if name not in environment}
    return shlex.join(["env", *(f"{n}={v}" for n, v in {**defaults, **plan.environment}.items()), *plan.argv])


def needs_ranks(ending: processes.Ending) -> bool:
    """Return whether only the ranks know how the job ended; otherwise mpirun has printed the failure."""
    return ending.overdue or not ending.status


def report(
    ending: processes.Ending, timeout: float | None, unfinished: Mapping[int, Rank], *, all_well: bool = False
) -> int:
    """Print the launcher's own actions, and the ranks that did not end regularly.

    :param unfinished: ranks that did not call shutdown(), of a job that needs_ranks()
    :param all_well: whether all ranks have ended after shutdown(), so that no process which is left is one of them
    :returns: the exit status of `hpccoll run`
    :raises KeyboardInterrupt: the user has interrupted the job, and it has failed
    """
    say_unfinished(unfinished)
    if ending.left_behind:
        processes.say(
            f"killed {ending.left_behind} processes that outlived {'the job' if ending.overdue else 'the launcher'}"
        )
    if ending.timed_out:
        processes.say(f"the job had not ended after {timeout:g} s (--timeout) and was ended")
        return TIMED_OUT
    if ending.overdue:
        processes.say(f"all ranks had ended, mpirun had not after {processes.OVERDUE:g} s more, and was ended")
        return 1
    if not ending.status and not all_well and (ending.left_behind or unfinished):
        what = "ranks were still running" if ending.left_behind else "not all ranks had ended well"
        processes.say(f"the launcher ended with status 0, but {what} (mpirun of Open MPI 5 does so if a node fails)")
        return 1
    if ending.status:
        processes.say(f"the job ended with status {ending.status}")
    if ending.status and ending.interrupted:
        raise KeyboardInterrupt
    return ending.status


def say_unfinished(unfinished: Mapping[int, Rank]) -> None:
    """Print the ranks that did not call shutdown(), and how they ended."""
    for number, rank in list(unfinished.items())[:MOST_NAMED]:
        if rank.cut_off:
            fate = "was cut off: its host does not answer"
        else:
            fate = "still ran when the launcher had ended" if rank.alive else "ended without hpccoll.shutdown()"
        processes.say(f"rank {number} (host {rank.host}, pid {rank.pid}) {fate}")
    if len(unfinished) > MOST_NAMED:
        processes.say(f"{len(unfinished) - MOST_NAMED} more ranks did not end well")
