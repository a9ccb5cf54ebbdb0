# SPDX-License-Identifier: Apache-2.0
"""`hpccoll study rank`: runs a program whose steps are known from the lines that it prints.

Rank 0 reads its program's output and passes it on; the other ranks become the program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpccoll import config, detect
from hpccoll.tools.bench import conditions, files
from hpccoll.tools.bench.results import Case, Key, Results, ResultsError
from hpccoll.tools.study.plan import What


def run(pattern: str, name: str, warmup: int, command: Sequence[str]) -> int:
    """Run one rank.

    :param pattern: has a group `seconds`, and may have `items`
    :returns: the exit status of the program
    :raises ResultsError: no line fits
    """
    environment = dict(config.environment())
    file = environment.pop(config.variable("study"), "")
    place = detect.place(environment)
    if place and place.rank:
        os.execvpe(command[0], list(command), environment)
    found: list[tuple[float, float]] = []
    program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert program.stdout
    for line in program.stdout:
        print(line, end="", flush=True)
        if match := re.search(pattern, line):
            groups = match.groupdict()
            found.append((float(groups["seconds"]), float(groups.get("items") or 0)))
    status = program.wait()
    if status == 0 and file:
        files.write(Path(file), results(found[warmup:], name, pattern, place))
    return status


def results(found: Sequence[tuple[float, float]], name: str, pattern: str, place: detect.Place | None) -> Results:
    """Make results of the steps that were printed.

    :raises ResultsError: there are none
    """
    if not found:
        raise ResultsError(f"no line of {name} fits the pattern {pattern!r} behind the {What.warmup} steps of warm-up")
    environment = config.environment()
    ranks = (place.size if place else None) or 1
    nodes = environment.get("HPCCOLL_NODES", "") or environment.get("SLURM_STEP_NUM_NODES", "")
    count = (
        len(nodes.split("+"))
        if "+" in nodes
        else int(nodes)
        if nodes.isdecimal()
        else ranks // max(1, (place.local_size if place else None) or 1)
    )
    launch = conditions.of_job(environment, {}, sys.argv) | {"ranks": ranks, "nodes": count, "warnings": []}
    key = Key("step", name, "program", "", "", "host", "", ranks, count, 0)
    seconds = np.array([s for s, _ in found])
    facts = {"version": "", "verified": False, "ended": "program", "items": found[-1][1], "log": pattern}
    zeros = np.zeros(len(seconds), np.int32)
    return Results([launch], {key: Case(key, seconds, zeros, zeros + 1, {}, facts)})
