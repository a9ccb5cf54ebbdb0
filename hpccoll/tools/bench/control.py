# SPDX-License-Identifier: Apache-2.0
"""The control plane: the cost of agreement on a step, among the ranks of the job and among very many virtual ranks.

Real ranks sum all tensors at once, with one element each, so a step is almost only agreement. Virtual ranks are real
engines in one process; the benchmark carries their messages, counts them, and measures the time inside the engines. The
counts of the predecessor's scheme, by its published rules, are shown beside them.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hpccoll
from hpccoll import _fleet
from hpccoll.tools.bench import measure, predecessor, statistics
from hpccoll.tools.bench.libraries import Hpccoll, Library
from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import Case, Facts, Key, ResultsError

NAME = "control"
GROUPS = 4
"""Groups of a grouped step, as gradients in buckets of 25 MB make of ResNet-50."""
PER_NODE = 6
"""Virtual ranks on a node, as on Summit."""
FIRST, CACHED = "first", ("in order", "differing", "one late")
RANK_BYTES = 12_000
"""Memory of a virtual rank without its tensors."""
TENSOR_BYTES = 700
"""Memory of a virtual rank per tensor: the cached response, the pending request, and the messages of a first step."""
Tensors = Sequence[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Asked:
    """The requested measurements of the control plane."""

    tensors: tuple[str, ...] = ("resnet50",)
    """`resnet50`, or numbers of tensors."""
    virtual: tuple[int, ...] = (6, 96, 1536)
    """Numbers of virtual ranks."""
    steps: int = 10
    """Cached steps for each order in which the tensors arrive."""


def tensors(text: str) -> Tensors:
    """Names and dimensions of the tensors of a step.

    :param text: `resnet50`, or a number of tensors
    :raises ResultsError: it is neither
    """
    if text == "resnet50":
        return _fleet.resnet50()
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise ResultsError(f"--tensors {text}: resnet50, or how many tensors, as 16,161,1000")
    return [(f"layer{i}.weight", (1024, 1024)) for i in range(int(text))]


def in_groups(several: Tensors) -> list[tuple[str, Tensors]]:
    """Divide the tensors into groups of consecutive ones."""
    bounds = [len(several) * i // GROUPS for i in range(GROUPS + 1)]
    parts = [several[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    return [(f"group.{i}", part) for i, part in enumerate(parts)]


# ---- real ranks ------------------------------------------------------------------------------------------


class Steps:
    """Steps of one contestant on this rank: each sums all tensors at once, with one element each."""

    def __init__(self, count: int, ranks: Ranks) -> None:
        self.arrays = [np.zeros(1, np.float32) for _ in range(count)]
        self.ranks, self.number = ranks, itertools.count()

    def cached(self, library: Library) -> Callable[[], None]:
        """Make a step whose names are known.

        :raises NotImplementedError: the library has no asynchronous sum
        """
        start = library.start()
        if start is None:
            raise NotImplementedError
        names = [f"control.{len(self.arrays)}.{i}" for i in range(len(self.arrays))]

        def step() -> None:
            waits = [start(name, x) for name, x in zip(names, self.arrays, strict=True)]
            for wait in waits:
                wait()

        return step

    def first(self, library: Library) -> Callable[[], None]:
        """Make a step with new names."""
        start = library.start()
        assert start is not None

        def step() -> None:
            of = f"control.first.{next(self.number)}"
            waits = [start(f"{of}.{i}", x) for i, x in enumerate(self.arrays)]
            for wait in waits:
                wait()

        return step

    def grouped(self, library: Hpccoll) -> Callable[[], None]:
        """Make a step in groups."""
        world = library.world
        bounds = [len(self.arrays) * i // GROUPS for i in range(GROUPS + 1)]
        groups = [self.arrays[a:b] for a, b in itertools.pairwise(bounds) if a < b]

        def step() -> None:
            of = f"control.group.{len(self.arrays)}"
            handles = [world.allreduce_async(group, name=f"{of}.{i}", out=group) for i, group in enumerate(groups)]
            for handle in handles:
                handle.wait()

        return step

    def wrong(self, step: Callable[[], None]) -> str:
        """Check a step with known sums; return "" or a text about the error. Writes zeros again, for the timing."""
        rank, size = self.ranks.rank, self.ranks.size
        for i, x in enumerate(self.arrays):
            x[0] = rank + i % 7
        step()
        expected = [size * (size - 1) // 2 + size * (i % 7) for i in range(len(self.arrays))]
        bad = [i for i, x in enumerate(self.arrays) if x[0] != expected[i]]
        found = ""
        if bad:
            found = f"rank {rank} has {self.arrays[bad[0]][0]:g} instead of {expected[bad[0]]} in tensor {bad[0]}"
        for x in self.arrays:
            x[0] = 0
        return found


def real(count: int, opened: list[Library], ranks: Ranks, launch: Facts, limits: measure.Limits) -> list[Case]:
    """Verify and time the steps of all contestants, in turn.

    :raises ResultsError: a sum is wrong
    """
    steps = Steps(count, ranks)
    made: list[tuple[str, str, Library, Callable[[], None]]] = []
    for library in opened:
        if library.start() is None:
            continue
        made += [("cached", "", library, steps.cached(library)), (FIRST, "", library, steps.first(library))]
        if isinstance(library, Hpccoll):
            made.append(("cached", "in groups", library, steps.grouped(library)))
    for _, _, library, step in made:
        _verify(steps, step, library, ranks)
    made.sort(key=lambda item: item[0] == FIRST)  # last, because new names evict cached names
    cases, cached = [], [step for which, _, _, step in made if which != FIRST]
    timed = measure.in_turn(cached, ranks, limits)
    timed += measure.in_turn([step for _, _, _, step in made[len(cached) :]], ranks, limits)
    for (which, how, library, step), measured in zip(made, timed, strict=True):
        _verify(steps, step, library, ranks)
        key = Key(
            "control", f"{count} tensors, {which}", library.name, f"{library.arm} {how}".strip(), "float32", "host",
            library.net, ranks.size, int(launch["nodes"]), 4 * count,
        )  # fmt: skip
        samples = np.array(measured.samples)
        facts = {"version": library.version, "verified": True, **measured.described(limits)}
        counts = np.full(len(samples), measured.calls, np.int32)
        cases.append(Case(key, samples, np.zeros(len(samples), np.int32), counts, measured.arrays(), facts))
    return cases


def _verify(steps: Steps, step: Callable[[], None], library: Library, ranks: Ranks) -> None:
    found = [text for text in ranks.share(steps.wrong(step)) if text]
    if found:
        raise ResultsError(f"a wrong result: {library.name} {library.version}, {NAME}: {found[0]}; nothing was written")


# ---- virtual ranks ---------------------------------------------------------------------------------------


def check_memory(asked: Asked) -> None:
    """Check the memory before anything is measured.

    :raises ResultsError: the virtual ranks do not fit into the memory of this machine
    """
    count, ranks = max(len(tensors(which)) for which in asked.tensors), max(asked.virtual, default=0)
    needed, there = ranks * (RANK_BYTES + TENSOR_BYTES * count), available()
    if needed > there:
        raise ResultsError(
            f"--virtual {ranks}: engines with {count} tensors need {needed / 1e9:.1f} GB of memory, and "
            f"{there / 1e9:.1f} GB are free: fewer ranks, or fewer --tensors"
        )


def virtual(which: str, ranks: int, fanout: int, steps: int) -> list[Case]:
    """Measure steps of virtual ranks, tensor by tensor and in groups.

    :param ranks: the number of virtual ranks, rounded down to whole nodes
    """
    several = tensors(which)
    per_node = min(PER_NODE, ranks)
    nodes = ranks // per_node
    singles: Any = [(name, [shape]) for name, shape in several]
    groups: Any = [(name, [shape for _, shape in part]) for name, part in in_groups(several)]
    cases = []
    for arm, requests in (("", singles), ("in groups", groups)):
        key = partial(Key, "engine", library="hpccoll", arm=arm, dtype="float32", memory="virtual", net="",
                      ranks=nodes * per_node, nodes=nodes, bytes=0)  # fmt: skip
        costs: dict[str, list[dict[str, float]]] = {FIRST: []}
        while len(costs[FIRST]) < statistics.LEAST:  # a fleet announces its tensors for the first time only once
            fleet = _fleet.Fleet(nodes, per_node, fanout, requests)
            costs[FIRST].append(fleet.step("in order"))
            if len(costs[FIRST]) < statistics.LEAST:
                del fleet  # before the next one takes as much memory
        costs |= {arrival: [fleet.step(arrival) for _ in range(steps)] for arrival in CACHED}
        del fleet
        for arrival, cost in costs.items():
            cases.append(_case(key(what=f"{len(several)} tensors, {arrival}"), cost, several, arrival))
    return cases


def _case(key: Key, costs: Sequence[dict[str, float]], several: Tensors, arrival: str) -> Case:
    samples = np.array([cost["cpu_mean"] for cost in costs])
    names = [(name, len(shape)) for name, shape in several]
    old = predecessor.first_announcement(key.ranks, names) if arrival == FIRST else predecessor.bit_vector(
        key.ranks, len(several)
    )  # fmt: skip
    facts = {"version": hpccoll.__version__, "verified": True, "ended": "counted", "predecessor": vars(old)}
    zeros = np.zeros(len(samples), np.int32)
    return Case(key, samples, zeros, zeros + 1, {}, facts | costs[-1])


def available() -> int:
    """Free bytes of memory of this machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
