# SPDX-License-Identifier: Apache-2.0
"""Invented results of studies, for tests of reports."""

import numpy as np

from hpccoll.tools.bench import control
from hpccoll.tools.bench.results import Case, Key, Results


def step(arm: str, nodes: int, seconds: float, scaling: str = "weak", count: int = 20, launches: int = 3) -> Case:
    """Return steps of about `seconds`, of which the computing takes 0.1 s."""
    random = np.random.default_rng([nodes, len(arm)])
    samples = seconds * random.lognormal(0, 0.02, count * launches)
    compute = 0.1 if scaling == "weak" else 0.1 / nodes
    key = Key("step", f"training, {scaling} scaling", "hpccoll", arm, "float32", "host", "mpi", 2 * nodes, nodes, 1000)
    launch = np.repeat(np.arange(launches, dtype=np.int32), count)
    parts = {"compute": np.full(len(samples), compute), "exposed communication": samples - compute}
    facts = {"version": "1", "verified": True, "ended": "narrow", "scaling": scaling, "items": 256.0 * nodes}
    return Case(key, samples, launch, np.ones(len(samples), np.int32), parts, facts)


def collective(library: str, nbytes: int, seconds: float) -> Case:
    """Return an allreduce that takes `seconds`."""
    samples = seconds * np.random.default_rng(nbytes).lognormal(0, 0.05, 30)
    key = Key("collective", "allreduce", library, "", "float32", "host", "mpi", 4, 2, nbytes)
    facts = {"version": "1", "verified": True, "ended": "narrow"}
    return Case(key, samples, np.zeros(30, np.int32), np.ones(30, np.int32), {}, facts)


def agreement() -> list[Case]:
    """Return measured steps of virtual ranks, and invented ones of real ranks and of a start."""
    found = [case for ranks in (6, 96) for case in control.virtual("16", ranks, 16, 6)]
    samples, zeros = 1e-3 * np.random.default_rng(1).lognormal(0, 0.05, 10), np.zeros(10, np.int32)
    facts = {"version": "1", "verified": True, "ended": "narrow", "received": 1e6, "peak": 2e6, "resident": 3e6}
    for kind, what in (("control", "16 tensors, cached"), ("start", "init, rank 0")):
        key = Key(kind, what, "hpccoll", "", "float32", "host", "", 96, 16, 0)
        found.append(Case(key, samples, zeros, zeros + 1, {}, facts))
    return found


def results() -> Results:
    """Return weak and strong scaling of two arms to 4 nodes, and an allreduce of two libraries."""
    launch = {
        "hpccoll": "1.0", "build": "b", "revision": "r", "date": "2026-11-22T12:00:00Z", "ranks": 2, "nodes": 1,
        "command": "made", "warnings": ["h1 was loaded before the ranks began"],
        "machine": {"processor": "a processor", "processors": 64}, "packages": {"numpy": "2"},
        "placement": [{"host": "h1"}, {"host": "h2"}],
    }  # fmt: skip
    found = Results([dict(launch) for _ in range(3)])
    for arm, cost in (("", 0.01), ("fp16", 0.005)):
        for nodes in (1, 4):
            for case in (
                step(arm, nodes, 0.1 + cost * nodes**0.5),
                step(arm, nodes, 0.1 / nodes + cost, "strong"),
            ):
                found.cases[case.key] = case
    for library, base in (("hpccoll", 4e-6), ("openmpi", 6e-6)):
        for power in range(3, 24, 5):
            case = collective(library, 2**power, base + 2**power / 5e9)
            found.cases[case.key] = case
    return Results(found.launches, found.cases | {case.key: case for case in agreement()})
