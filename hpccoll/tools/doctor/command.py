# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll doctor`: reads the arguments, gets a report with or without MPI, and prints it."""

import argparse
import json
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hpccoll import detect, inherited
from hpccoll.checks.finding import Facts
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.launch_protocol import STORE
from hpccoll.tools.doctor import (
    child_monitor,
    examine,
    exchange,
    hosts,
    identity,
    mpi,
    network,
    rendering,
    stages,
    termination,
    training,
    trial,
)
from hpccoll.tools.kin import end_with_parent
from hpccoll.tools.launch.job import LaunchError, parse_hosts
from hpccoll.tools.trace import cli as trace
from hpccoll.tools.trace import gather
from hpccoll.tools.trace.recording import TraceError

EXCHANGE_SECONDS = 15.0
"""Seconds to wait for a rank in an exchange through a folder; all ranks notice a hanging MPI_Init nearly together."""
LET_OTHERS_REPORT = 10.0
"""Seconds before a rank that reports alone ends with an error, at which mpirun kills the others."""
DESCRIPTION = """
Finds what keeps a job from starting or makes it slow, from the lowest layer up, and measures the network.
Start it like the job: `srun -N2 -n8 python -m hpccoll doctor`, `hpccoll run -H h1:4,h2:4 hpccoll doctor`; on one
machine `hpccoll doctor -np 2`. Where mpirun itself hangs, `hpccoll doctor -H h1,h2` asks the hosts over ssh, without
MPI. Exit status: 0 no errors, 1 errors, 2 usage.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll doctor`."""
    parser = commands.add_parser("doctor", help="why it hangs, fails or is slow", description=DESCRIPTION)
    add = parser.add_argument
    _add_ranks(parser)
    add("--json", action="store_true", help="for programs")
    add(
        "--no-measuring",
        dest="measure",
        action="store_false",
        help="only look, and try connections; measure nothing",
    )
    add(
        "--require", action="append", default=[], metavar="WHAT",
        help="bandwidth=10Gbit, latency=20us: an error if a link between nodes is worse",
    )  # fmt: skip
    add(
        "--interfaces", default="", metavar="eth0,ib0",
        help="try these alone, and listen at their addresses alone (default: all that are up)",
    )  # fmt: skip
    add("-H", "--hosts", metavar="h1,h2", help="ask these hosts over ssh, without MPI and its launcher")
    add("--ssh", default="ssh", metavar="COMMAND", help="how to reach a host with -H (default: ssh)")
    add(
        "--patience", type=float, default=30.0, metavar="SECONDS",
        help="when a stage of MPI's start counts as hanging (default: 30)",
    )  # fmt: skip
    add(
        "--meet", default=".", metavar="FOLDER",
        help="where ranks exchange reports while MPI is not up; all hosts must share it (default: this folder)",
    )  # fmt: skip
    add(
        "--gpu-aware",
        action="store_true",
        help="only try whether MPI can use device memory (a step of its own), and record the verdict",
    )
    needs = parser.add_argument_group("what a training needs")
    needs.add_argument("--model", choices=training.MODELS, help="bytes and time of a step that were published")
    needs.add_argument("--bytes", type=float, metavar="N", help="gradient bytes per step")
    needs.add_argument("--compute", type=float, metavar="SECONDS", help="computation per step")
    needs.add_argument("--nodes", type=int, metavar="N", help="on how many nodes (default: those of this job)")
    needs.add_argument(
        "--overlap", type=float, default=0.5, metavar="SHARE",
        help="share of the computation during which gradients can travel (default: 0.5)",
    )  # fmt: skip
    add(
        "--attach", metavar="JOB",
        help="of a job that hangs now: say who waits for whom; the process number of `hpccoll run`, or a Slurm job",
    )  # fmt: skip
    add("--at-hub", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-np", "-n", dest="ranks", type=int, metavar="N", help="start N ranks with `hpccoll run`")


def main(arguments: argparse.Namespace) -> int:
    """Examine the job and print the report.

    :returns: the exit status: 0 no errors, 1 errors, 2 the arguments were wrong
    """
    if arguments.at_hub:
        return at_hub()
    try:
        if arguments.ranks is not None:
            return start(arguments)
        if arguments.attach is not None:
            return attach(arguments.attach)
        options = read_options(arguments)
        record = trial.record() if arguments.gpu_aware else None
        if arguments.hosts is not None:
            named = parse_hosts(arguments.hosts)
            return show(hosts.run(named, arguments.ssh, options, arguments.patience), arguments.json)
    except (ValueError, LaunchError, TraceError) as error:
        print(f"hpccoll doctor: {error}", file=sys.stderr)
        return 2
    if record:
        process = identity.read(inherited.environment())
        return trial.gpu_aware_mpi(process, record, arguments.patience, arguments.json, _reporter(process))
    return in_job(options, arguments)


def start(arguments: argparse.Namespace) -> int:
    """Start the ranks that -np asks for, each of which is this command without -np.

    :returns: the exit status of `hpccoll run`
    :raises ValueError: an argument asks for ranks of another job
    """
    for name in ("hosts", "attach"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"-np {arguments.ranks} starts ranks on this machine: leave --{name} out, or -np")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_ranks(parser)
    _, words = parser.parse_known_args(sys.argv[1:])
    python = [sys.executable, "-m", "hpccoll"]
    command = [*python, "run", "-np", str(arguments.ranks), *python, *words]
    return subprocess.run(command, check=False, preexec_fn=partial(end_with_parent, signal.SIGTERM)).returncode


def attach(job: str) -> int:
    """Print what the ranks of a running job wait for.

    :returns: the exit status: 0
    :raises TraceError: no rank can be read
    """
    folder = gather.attach(job)
    print(f"The last events of the ranks are in {folder}.\n")
    trace.show(folder)
    return 0


def read_options(arguments: argparse.Namespace) -> Facts:
    """Check the arguments.

    :returns: the options of `examine.examine`
    :raises ValueError: an argument makes no sense
    """
    required = dict(map(network.requirement, ",".join(arguments.require).split(","))) if arguments.require else {}
    if required and not arguments.measure:
        raise ValueError("--require needs a measurement: leave --no-measuring out")
    if not 0 < arguments.patience < math.inf:
        raise ValueError(f"--patience {arguments.patience:g}: seconds, more than 0")
    return {
        "measure": arguments.measure,
        "interfaces": [name for name in arguments.interfaces.split(",") if name],
        "required": required,
        "training": _training(arguments),
    }


def _training(arguments: argparse.Namespace) -> Facts | None:
    if arguments.model is None and arguments.bytes is None and arguments.compute is None:
        if arguments.nodes is not None:
            raise ValueError("--nodes asks about a training: --model NAME, or --bytes N and --compute SECONDS")
        return None
    model = training.MODELS.get(arguments.model)
    nbytes = arguments.bytes or (4.0 * model.parameters if model else None)
    compute = arguments.compute or (model.compute if model else None)
    if not all(0 < (value or 0) < math.inf for value in (nbytes, compute)):
        raise ValueError("what does a training need? --model NAME, or --bytes N and --compute SECONDS, both positive")
    if not 0 <= arguments.overlap <= 1:
        raise ValueError(f"--overlap {arguments.overlap:g}: a share from 0 to 1")
    if arguments.nodes is not None and arguments.nodes < 1:
        raise ValueError(f"--nodes {arguments.nodes}: at least one")
    return {
        "name": arguments.model or "this training",
        "bytes": nbytes,
        "compute": compute,
        "nodes": arguments.nodes,
        "overlap": arguments.overlap,
    }


def show(report: Facts | None, as_json: bool, prefix: str = "") -> int:
    """Print a report.

    :param report: None: another rank prints it
    :param prefix: begins each line
    :returns: the exit status: 1 if the report has errors
    """
    if report is None:
        return 0
    printed = json.dumps(report, indent=2) if as_json else rendering.render(report)
    sys.stdout.write("".join(f"{prefix}{line}\n" for line in printed.splitlines()))
    sys.stdout.flush()
    return int(report["errors"] > 0)


# ---- inside a job, or alone ------------------------------------------------------------------------------


def in_job(options: Facts, arguments: argparse.Namespace) -> int:
    """Examine the machine, let a child process start MPI, and exchange reports without MPI if it does not start.

    :returns: the exit status
    """
    mine = examine.look()
    process = identity.read(inherited.environment())
    given = {"report": vars(mine), "options": options}
    outcome = child_monitor.Outcome()
    if STORE in inherited.environment():  # the ranks of hpccoll's own launcher do not use an MPI that is there
        mine.facts[mpi.NAME] = {mpi.UNUSED: True}
        return without_mpi(mine, process, options, arguments)
    termination.raise_on_sigterm()
    try:
        child_monitor.run("hpccoll.tools.doctor.mpi_child", given, arguments.patience, _reporter(process), outcome)
        absent = (outcome.report or {}).get(mpi.ABSENT)
        if not absent and (outcome.report is not None or outcome.status == 0):
            termination.ignore_sigterm()
            return show(outcome.report, arguments.json)
        mine.facts[mpi.NAME] = {mpi.ABSENT: absent} if absent else mpi.failed(outcome)
        return without_mpi(mine, process, options, arguments)
    except termination.Terminated:
        complete = outcome.report is not None and mpi.ABSENT not in outcome.report
        if complete or outcome.stage in stages.LAST:
            return show(outcome.report, arguments.json)
        mine.facts[mpi.NAME] = mpi.failed(outcome, asked_to_end=True)
        return report_at_once(mine, process, options, arguments)


def _reporter(process: identity.Identity) -> Callable[[str, float], None]:
    """Make a function with which rank 0 prints what it waits for."""

    def print_stage(stage: str, seconds: float) -> None:
        if process.rank == 0:
            print(f"hpccoll doctor: rank 0: {seconds:.0f} s in {stage}", file=sys.stderr, flush=True)

    return print_stage


def report_at_once(mine: RankReport, process: identity.Identity, options: Facts, arguments: argparse.Namespace) -> int:
    """Print the facts of the first rank of each node, before the launcher that ends the job kills it.

    Open MPI 5 leaves a fifth of a second for that.
    """
    place = detect.place(inherited.environment())
    if place is None or not place.local_rank:
        report = examine.summarize(Survey([mine], 1), options | {"measure": False})
        show(report, arguments.json, "" if arguments.json else f"{mine.host} rank {process.rank}: ")
    return 1


def without_mpi(mine: RankReport, process: identity.Identity, options: Facts, arguments: argparse.Namespace) -> int:
    """Exchange reports in a folder; a rank without an answer there prints its own, each line with its host's name."""
    if process.size == 1:
        return show(examine.examine(exchange.SingleProcess(), mine, options, lambda _: None), arguments.json)
    ranks = None
    try:
        name = re.sub(r"\W+", "-", process.job)
        if not name:
            raise exchange.ExchangeError(f"{process.launcher} gives the job no name for a common folder")
        folder = Path(arguments.meet) / f".hpccoll-doctor-{name}"
        ranks = exchange.FolderExchange(folder, process.rank, process.size, EXCHANGE_SECONDS)
        report = examine.examine(ranks, mine, options, lambda _: None)
        status = show(report, arguments.json)
        ranks.close()
    except (exchange.ExchangeError, OSError) as error:
        if ranks is not None:
            ranks.leave()
        print(
            f"hpccoll doctor: {mine.host}: rank {process.rank} reports alone: {error}",
            file=sys.stderr,
            flush=True,
        )
        alone = examine.examine(exchange.SingleProcess(process.rank, process.size), mine, options, lambda _: None)
        status = show(alone, arguments.json, "" if arguments.json else f"{mine.host} rank {process.rank}: ")
        time.sleep(LET_OTHERS_REPORT)
        return max(status, 1)
    return status if {mpi.ABSENT, mpi.UNUSED} & mine.facts[mpi.NAME].keys() else max(status, 1)


def at_hub() -> int:
    """Take part in an examination as a process that the hub of hosts.py started."""
    print(json.dumps({"here": True}), flush=True)
    orders = json.loads(sys.stdin.readline() or "null")
    if orders is None:  # the hub is gone
        return 1
    mine = examine.look()
    mine = RankReport(orders["rank"], mine.host, mine.node, mine.facts)
    ranks = exchange.HubExchange(orders["rank"], orders["size"])
    report = examine.examine(ranks, mine, orders["options"], lambda _: None)
    print(json.dumps({"report": report}), flush=True)
    return 0
