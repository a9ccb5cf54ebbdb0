# SPDX-License-Identifier: Apache-2.0
"""`hpccoll study rank`: runs a program that prints a line per step.

Rank 0 reads its program's output and prints it; the other ranks become the program.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hpccoll import config, detect, inherited
from hpccoll.tools.bench import conditions, files
from hpccoll.tools.bench.results import Case, Key, Results, ResultsError


def run(pattern: str, name: str, warmup: int, command: Sequence[str]) -> int:
    """Run one rank.

    :param pattern: has a group `seconds`, and may have `items`
    :returns: the exit status of the program
    :raises ResultsError: there is no such program, no line matches, or the `seconds` of one are no number
    """
    environment = dict(inherited.environment())
    file = environment.pop(config.variable("study"), "")
    place = detect.place(environment)
    warning = conditions.loaded(platform.node(), os.getloadavg()[0], os.cpu_count() or 1)
    try:
        if place and place.rank:
            os.execvpe(command[0], list(command), environment)
        program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    except OSError as error:
        raise ResultsError(f"{name}: {command[0]}: {error.strerror}") from None
    try:
        found = _steps(program, pattern, name)
    except ResultsError:
        program.kill()
        raise
    status = program.wait()
    if status == 0 and file:
        files.write(Path(file), results(found[warmup:], name, pattern, place, [warning] if warning else []))
    return status


def _steps(program: subprocess.Popen[bytes], pattern: str, name: str) -> list[tuple[float, float]]:
    """Print what a program prints, as it is, and return the seconds and items of its steps.

    :raises ResultsError: the pattern finds something that is no number
    """
    found = []
    assert program.stdout
    for line in program.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        if match := re.search(pattern, line.decode(errors="replace").replace("\r\n", "\n")):
            groups = match.groupdict()
            try:
                found.append((float(groups["seconds"]), float(groups.get("items") or 0)))
            except (TypeError, ValueError):
                raise ResultsError(f"{name}: the pattern {pattern!r} finds no numbers but {groups}") from None
    return found


def results(
    found: Sequence[tuple[float, float]], name: str, pattern: str, place: detect.Place | None, warnings: list[str]
) -> Results:
    """Make results of the printed steps.

    :raises ResultsError: there are none
    """
    if not found:
        raise ResultsError(f"no line of {name} behind those of the warm-up fits the pattern {pattern!r}")
    environment = inherited.environment()
    ranks = (place.size if place else None) or 1
    nodes = nodes_of(environment, place, ranks)
    launch = conditions.of_job(environment, {}, sys.argv) | {"ranks": ranks, "nodes": nodes, "warnings": warnings}
    key = Key("step", name, "program", "", "", "host", "", ranks, nodes, 0)
    seconds = np.array([s for s, _ in found])
    facts = {"version": "", "verified": False, "ended": "program", "items": found[-1][1], "log": pattern}
    zeros = np.zeros(len(seconds), np.int32)
    return Results([launch], {key: Case(key, seconds, zeros, zeros + 1, {}, facts)})


def nodes_of(environment: Mapping[str, str], place: detect.Place | None, ranks: int) -> int:
    """Count the nodes of a job: emulated ones, those of the step, or all ranks divided by the ranks of this node."""
    emulated = environment.get(config.variable("nodes"), "")
    if "+" in emulated:
        return len(emulated.split("+"))
    if (given := emulated or environment.get("SLURM_STEP_NUM_NODES", "")).isdecimal():
        return int(given)
    return ranks // max(1, (place.local_size if place else None) or 1)
