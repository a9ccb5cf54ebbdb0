# SPDX-License-Identifier: Apache-2.0
"""The cost of init(), subset() and split() for a rank of a very large job: CPU time, received bytes, memory."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hpccoll
from hpccoll import inherited
from hpccoll.tools.bench import conditions
from hpccoll.tools.bench.results import Case, Facts, Key, Results, ResultsError

NAME = "startup"
PER_NODE = 6
PLACES = {"rank 0": 0, "a node's first rank": PER_NODE, "another rank": PER_NODE + 1}
TIMEOUT = 300


def one(rank: int, size: int, traced: bool) -> Any:
    """Run a rank in a separate process.

    :returns: its measurements, by step of the start
    :raises ResultsError: it failed
    """
    command = [sys.executable, "-P", "-m", "hpccoll.tools.bench.one_rank", "--rank", str(rank), "--ranks", str(size)]
    command += ["--traced"] * traced
    variables = {**inherited.environment(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    if done.returncode:
        raise ResultsError(f"{NAME}: rank {rank} of {size} failed: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(
    sizes: Sequence[int], repeat: int, command: Sequence[str], progress: Callable[[list[Case]], None]
) -> Results:
    """Measure the start of ranks at three places of jobs of these sizes.

    :param repeat: processes per place, for the interval of the CPU time; the bytes are the same in each
    :raises ResultsError: a rank failed
    """
    environment = inherited.environment()
    facts = conditions.of_job(environment, {}, list(command))
    launch = facts | {"ranks": 1, "nodes": 1, "warnings": [], "placement": [conditions.of_rank()]}
    found = Results([launch])
    for size in sizes:
        for place, rank in PLACES.items():
            if rank < size:
                cases = _place(place, rank, size, repeat)
                found.cases.update({case.key: case for case in cases})
                progress(cases)
    return found


def _place(place: str, rank: int, size: int, repeat: int) -> list[Case]:
    runs = [one(rank, size, traced=False) for _ in range(repeat)]
    peaks = one(rank, size, traced=True)
    cases = []
    for step, first in runs[0].items():
        nodes = -(-size // PER_NODE)
        key = Key("start", f"{step}, {place}", "hpccoll", "", "", "virtual", "", size, nodes, 0)
        samples = np.array([run[step]["cpu"] for run in runs])
        facts: Facts = {"version": hpccoll.__version__, "verified": True, "ended": "counted"}
        facts |= {"received": first["received"], "peak": peaks[step]["peak"]}
        facts["resident"] = float(np.median([run[step].get("resident", 0) for run in runs]))
        zeros = np.zeros(len(samples), np.int32)
        cases.append(Case(key, samples, zeros, zeros + 1, {}, facts))
    return cases
