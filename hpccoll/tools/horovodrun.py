# SPDX-License-Identifier: Apache-2.0
"""`hpccoll horovodrun`: `hpccoll run` with the flags of Horovod's launcher.

There is no script `horovodrun`: it would replace Horovod's in an environment that has both.

FLAGS has each flag of Horovod 0.28 with its counterpart here. A flag without a counterpart is accepted with a message
if the job does not need it, and refused with a message otherwise.
"""

import argparse
import shlex
from typing import Any, NamedTuple

from hpccoll import __main__ as command_line
from hpccoll import _core, config
from hpccoll.horovod import environment
from hpccoll.tools.launch import processes
from hpccoll.tools.launch.job import LaunchError

INTERFACES = (
    "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include", "NCCL_SOCKET_IFNAME",
)  # fmt: skip
"""Variables of Open MPI 4 and 5 and of NCCL that choose interfaces; MPICH's HYDRA_IFACE takes one only."""
SSH_OPTIONS = ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args", "HYDRA_LAUNCHER_EXTRA_ARGS")
"""Variables of Open MPI 4, Open MPI 5 and MPICH that hold options for ssh."""


class Flag(NamedTuple):
    """A flag of horovodrun, or several that belong together, and its translation."""

    names: str
    """The spellings of the flag, separated by blanks."""
    kind: type | None
    """The type of its value; None: it takes none."""
    becomes: str
    """`run OPTION` of hpccoll run, `HOROVOD_X` which hpccoll/horovod/environment.py translates, `ssh OPTION`,
    `variables`, `done here`, `nothing` or `refused`."""
    text: str = ""
    """Why the flag is refused or has no effect, or a text for the documentation."""
    values: int | None = None
    """The number of its values; None: one."""

    @property
    def dest(self) -> str:
        """The name in the parsed arguments."""
        return self.names.split()[-1].lstrip("-").replace("-", "_")


FLAGS = (
    Flag("-np --num-proc", int, "run -np"),
    Flag("-H --hosts", str, "run -H"),
    Flag("-hostfile --hostfile", str, "run --hostfile"),
    Flag("--output-filename", str, "run --output"),
    Flag("--mpi-args", str, "run --launcher-options"),
    Flag("--binding-args", str, "run --launcher-options"),
    Flag("-p --ssh-port", int, "ssh -p"),
    Flag("-i --ssh-identity-file", str, "ssh -i"),
    Flag(
        "--network-interfaces",
        str,
        "variables",
        "of Open MPI and NCCL; MPICH: set HYDRA_IFACE, and FI_PROVIDER=tcp with FI_TCP_IFACE, or UCX_NET_DEVICES",
    ),
    Flag("--network-interface", str, "variables", "the same; may come several times"),
    Flag(
        "--tcp", None, "variables", "OMPI_MCA_pml=ob1, OMPI_MCA_btl=self,sm,tcp, FI_PROVIDER=tcp, UCX_TLS=self,sm,tcp"
    ),
    Flag("--start-timeout", int, "HOROVOD_START_TIMEOUT"),
    Flag("--fusion-threshold-mb", int, "HOROVOD_FUSION_THRESHOLD"),
    Flag("--cycle-time-ms", float, "HOROVOD_CYCLE_TIME"),
    Flag("--cache-capacity", int, "HOROVOD_CACHE_CAPACITY"),
    Flag("--timeline-filename", str, "HOROVOD_TIMELINE"),
    Flag("--no-stall-check", None, "HOROVOD_STALL_CHECK_DISABLE"),
    Flag("--stall-check-warning-time-seconds", int, "HOROVOD_STALL_CHECK_TIME_SECONDS"),
    Flag("--stall-check-shutdown-time-seconds", int, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    Flag("--log-level", str, "HOROVOD_LOG_LEVEL"),
    Flag("-cb --check-build", None, "done here", "runs `hpccoll info`, which lists what is there"),
    Flag("--verbose", None, "done here", "prints the command of hpccoll that this one becomes"),
    Flag("--mpi", None, "nothing", "MPI's launcher starts the ranks, where there is one"),
    Flag("--gloo", None, "nothing", "there is no Gloo: shared memory, MPI or UCX, and NCCL carry the data"),
    Flag("--disable-cache", None, "nothing", "nothing is checked before the start that could be cached"),
    Flag("--hierarchical-allreduce", None, "nothing", "the data path is always hierarchical"),
    Flag("--no-hierarchical-allreduce", None, "nothing", "the data path is always hierarchical"),
    Flag("--hierarchical-allgather", None, "nothing", "the data path is always hierarchical"),
    Flag("--no-hierarchical-allgather", None, "nothing", "the data path is always hierarchical"),
    Flag("--timeline-mark-cycles", None, "nothing", "there are no cycles to mark"),
    Flag("--no-timeline-mark-cycles", None, "nothing", "there are no cycles to mark"),
    Flag("--stall-check", None, "nothing", "it is on"),
    Flag("--mpi-threads-disable", None, "nothing", "the MPI library says how many threads may call it"),
    Flag("--no-mpi-threads-disable", None, "nothing", "the MPI library says how many threads may call it"),
    Flag("--num-nccl-streams", int, "nothing", "one stream per process set"),
    Flag("--thread-affinity", int, "nothing", "the background thread runs where its rank is bound"),
    Flag("--gloo-timeout-seconds", int, "nothing", "there is no Gloo; HPCCOLL_STALL_LIMIT and HPCCOLL_PEER_TIMEOUT"),
    Flag("--log-with-timestamp", None, "nothing", "lines have no time; the program `ts` adds it"),
    Flag("--log-without-timestamp", None, "nothing", "lines have no time"),
    Flag("--log-hide-timestamp", None, "nothing", "lines have no time"),
    Flag("--no-log-hide-timestamp", None, "nothing", "lines have no time; the program `ts` adds it"),
    Flag(
        "-prefix-timestamp --prefix-output-with-timestamp",
        None,
        "nothing",
        "lines have no time; the program `ts` adds it",
    ),
    Flag("--autotune", None, "HOROVOD_AUTOTUNE"),
    Flag("--no-autotune", None, "nothing", "it is off unless it is asked for"),
    Flag("--autotune-log-file", str, "HOROVOD_AUTOTUNE_LOG"),
    Flag("--autotune-warmup-samples", int, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"),
    Flag("--autotune-steps-per-sample", int, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"),
    Flag("--autotune-bayes-opt-max-samples", int, "nothing", "the tuner ends when nothing gains"),
    Flag("--autotune-gaussian-process-noise", float, "nothing", "the tuner has no Gaussian process"),
    Flag("--jsrun", None, "refused", "start the program with jsrun itself; `hpccoll submit` writes the job script"),
    Flag("--config-file", str, "refused", "give the flags themselves, or set HPCCOLL_ variables"),
    Flag("--min-np --min-num-proc", int, "run --min-np"),
    Flag("--max-np --max-num-proc", int, "run --max-np"),
    Flag("--slots-per-host", int, "run --slots-per-host"),
    Flag("--elastic-timeout", int, "run --elastic-timeout"),
    Flag("--reset-limit", int, "run --reset-limit"),
    Flag("--blacklist-cooldown-range", int, "run --blacklist-cooldown-range", values=2),
    Flag("--host-discovery-script", str, "run --host-discovery-script"),
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll horovodrun`."""
    made = commands.add_parser("horovodrun", help="run, with the flags of Horovod's launcher", allow_abbrev=False)
    add_flags(made)
    made.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Translate the command line into one of hpccoll, and execute that.

    :returns: its exit status
    """
    try:
        words, notes = translate(arguments)
    except LaunchError as error:
        processes.say(str(error))
        return 2
    for note in notes:
        processes.say(note)
    return command_line.main(words)


def translate(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Translate the arguments of horovodrun.

    :returns: the arguments of hpccoll, and messages about flags without an effect
    :raises LaunchError: a flag has no counterpart
    """
    given = [(flag, getattr(arguments, flag.dest)) for flag in FLAGS if getattr(arguments, flag.dest) not in (None, [])]
    for flag, _ in given:
        if flag.becomes == "refused":
            raise LaunchError(f"horovodrun {flag.names.split()[-1]}: {flag.text}")
    if arguments.check_build:
        return ["info"], []
    options: list[str] = []
    for flag, values in given:
        if flag.becomes.startswith("run "):
            name = flag.becomes.removeprefix("run ")
            options += [
                word
                for value in values
                for word in ([name, *map(str, value)] if isinstance(value, list) else [f"{name}={value}"])
            ]
    variables = ssh_variables(given) | chosen_variables(given) | knob_variables(given)
    options += [f"-x={name}={value}" for name, value in variables.items()]
    notes = [f"{flag.names.split()[-1]}: {flag.text}" for flag, _ in given if flag.becomes == "nothing"]
    translated = ["run", *options, *arguments.command]
    if arguments.verbose:
        notes = [f"this is `{shlex.join(['hpccoll', *translated])}`", *notes]
    return translated, notes


def add_flags(made: argparse.ArgumentParser) -> None:
    """Add all flags of horovodrun to a parser."""
    made.add_argument("-v", "--version", action="version", version=f"hpccoll {_core.VERSION}")
    for flag in FLAGS:
        text = flag.text or f"becomes {flag.becomes.replace('run ', 'hpccoll run ')}"
        names = flag.names.split()
        if flag.kind is None:
            made.add_argument(*names, dest=flag.dest, action="store_const", const=[1], help=text)
        else:
            made.add_argument(
                *names, dest=flag.dest, type=flag.kind, action="append", nargs=flag.values, metavar="VALUE", help=text
            )
    made.add_argument("command", nargs=argparse.REMAINDER, help="python train.py ...")


Given = list[tuple[Flag, list[Any]]]


def ssh_variables(given: Given) -> dict[str, str]:
    """Return the variables that make mpirun give options to ssh."""
    words = [
        word
        for flag, values in given
        if flag.becomes.startswith("ssh ")
        for word in (flag.becomes.removeprefix("ssh "), str(values[-1]))
    ]
    return dict.fromkeys(SSH_OPTIONS, shlex.join(words)) if words else {}


def chosen_variables(given: Given) -> dict[str, str]:
    """Return the variables of MPI and NCCL that choose interfaces and transports."""
    values = {flag.dest: values for flag, values in given}
    interfaces = [name for flag in ("network_interfaces", "network_interface") for name in values.get(flag, [])]
    chosen = dict.fromkeys(INTERFACES, ",".join(interfaces)) if interfaces else {}
    if "tcp" in values:
        chosen |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp", "FI_PROVIDER": "tcp", "UCX_TLS": "self,sm,tcp"}
    return chosen


def knob_variables(given: Given) -> dict[str, str]:
    """Return the variables of hpccoll, through those that horovodrun would set for Horovod."""
    old: dict[str, str] = {}
    for flag, values in given:
        if flag.becomes.startswith("HOROVOD_"):
            value = values[-1] << 20 if flag.dest == "fusion_threshold_mb" else values[-1]
            old[flag.becomes] = str(value)
    knobs = environment.read(old).knobs
    return {
        config.variable(name): str(int(value) if isinstance(value, bool) else value) for name, value in knobs.items()
    }
