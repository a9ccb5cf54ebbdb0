# SPDX-License-Identifier: Apache-2.0
"""The options of bsub that the stand-in has, on the command line and in `#BSUB` lines, and the schedule of signals."""

import re
import shlex
import signal
from dataclasses import dataclass

VALUES = ("nnodes", "alloc_flags", "gpu", "wa", "wt", "n", "J", "R", "W", "P", "Q", "o", "e", "q")
FLAGS = ("x", "r", "K")


class Refused(Exception):
    """bsub's reason to refuse a job."""


def read(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Read options with one dash; a value may be attached to a short one, as in -W02:00.

    :returns: the options, and the command behind them
    """
    found, rest = {}, list(words)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)[1:]
        if name in FLAGS:
            found[name] = "y"
        elif name in VALUES and rest:
            found[name] = rest.pop(0)
        elif name[:1] in VALUES and name[1:]:
            found[name[0]] = name[1:]
        else:
            raise Refused(f"-{name}: Illegal option. Job not submitted.")
    return found, rest


def of_script(text: str) -> dict[str, str]:
    """Read the options of a script's #BSUB lines."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#BSUB"):
            options, rest = read(shlex.split(line.removeprefix("#BSUB")))
            if rest:
                raise Refused(f"{line}: {rest[0]} is no option")
            found |= options
    return found


def minutes(text: str) -> int:
    """Read [hours:]minutes."""
    if not re.fullmatch(r"(\d+:)?\d+", text):
        raise Refused(f"{text}: Illegal run limit. Job not submitted.")
    hours, _, rest = text.rpartition(":")
    return 60 * int(hours or 0) + int(rest)


@dataclass(frozen=True)
class Shape:
    """What a job asks for. On a machine like Summit it has a launch node besides its compute nodes."""

    nodes: int
    slots: int
    """Slots of each node."""
    launch_node: bool


def shape(options: dict[str, str], cores: int) -> Shape:
    """Find the nodes of a job.

    :param cores: the cores of a compute node of a machine like Summit, which are its slots
    """
    if "nnodes" in options:
        if "R" in options:
            raise Refused("-R and -nnodes exclude each other (Summit's easy mode). Job not submitted.")
        return Shape(int(options["nnodes"]), cores, True)
    slots = int(options.get("n", "1"))
    tile = re.search(r"span\[ptile=(\d+)\]", options.get("R", ""))
    each = min(slots, int(tile[1]) if tile else slots)
    return Shape(-(-slots // each), each, False)


def array(options: dict[str, str]) -> tuple[str, list[int], int]:
    """Return a job's name, the indices of its array ([0]: it is none), and how many may run at once."""
    name = options.get("J", "NoName")
    if not (found := re.fullmatch(r"([^\[]*)\[(\d+)-(\d+)\](?:%(\d+))?", name)):
        return name, [0], 1
    indices = list(range(int(found[2]), int(found[3]) + 1))
    return found[1], indices, int(found[4] or len(indices))


def requeues(options: dict[str, str], status: int) -> bool:
    """Tell whether -Q puts a job back that ends with this status: "[all] [~number ...] | [number ...]"."""
    words = options.get("Q", "").split()
    return str(status) in words or ("all" in words and f"~{status}" not in words)


def signals(options: dict[str, str], minute: float, killed: float | None, interval: float) -> list[tuple[float, str]]:
    """Return when LSF sends which signals to a job, in seconds from its start.

    -wa is sent -wt minutes before the run limit; at the limit SIGUSR2; ten minutes later the job is killed. What is
    killed gets SIGINT, SIGTERM and SIGKILL, an interval apart (10 s: JOB_TERMINATE_INTERVAL of lsb.params).

    :param minute: seconds of a minute
    :param killed: when bkill or brequeue has asked for the job's end
    """
    found = []
    if "W" in options:
        limit = minutes(options["W"])
        if "wa" in options and "wt" in options:
            found.append((minute * (limit - minutes(options["wt"])), options["wa"]))
        found.append((minute * limit, "USR2"))
        killed = minute * (limit + 10) if killed is None else killed
    if killed is not None:
        found += [(killed + step * interval, name) for step, name in enumerate(("INT", "TERM", "KILL"))]
    return sorted(found)


def number(name: str) -> signal.Signals:
    """Return a signal by its name without SIG, or by its number."""
    return signal.Signals(int(name)) if name.isdecimal() else signal.Signals[f"SIG{name}"]
