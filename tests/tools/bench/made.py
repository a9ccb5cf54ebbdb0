# SPDX-License-Identifier: Apache-2.0
"""Invented results, for tests of the commands that read results."""

import numpy as np

from hpccoll.tools.bench.results import Case, Key, Results


def results(scale: float = 1.0, seed: int = 0, launches: int = 6, version: str = "1.0", count: int = 20) -> Results:
    """Return an allreduce of 8 B and 1 KiB by two libraries on 2 ranks, about 10 us times `scale`."""
    random = np.random.default_rng(seed)
    facts = [
        {"hpccoll": version, "build": "b", "revision": "r", "ranks": 2, "nodes": 1, "warnings": [], "command": "made"}
        for _ in range(launches)
    ]
    found = Results(facts)
    for library in ("hpccoll", "gloo"):
        for nbytes in (8, 1024):
            key = Key("collective", "allreduce", library, "", "float32", "host", "mpi", 2, 1, nbytes)
            samples = scale * 1e-5 * random.lognormal(0, 0.05, launches * count)
            launch = np.repeat(np.arange(launches, dtype=np.int32), count)
            calls = np.ones(len(samples), np.int32)
            about = {"version": version, "verified": True, "ended": "narrow"}
            found.cases[key] = Case(key, samples, launch, calls, {}, about)
    return found
