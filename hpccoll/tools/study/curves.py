# SPDX-License-Identifier: Apache-2.0
"""The data of a report's figures and tables: medians, speed-up and efficiency, each with its interval."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from hpccoll.tools.bench import collectives, statistics
from hpccoll.tools.bench.results import Case, Results, ResultsError
from hpccoll.tools.bench.statistics import Median, Resampled
from hpccoll.tools.study import beyond
from hpccoll.tools.study.beyond import Beyond

OTHER = "other"


@dataclass(frozen=True)
class Point:
    """One number of nodes of one contestant."""

    nodes: int
    ranks: int
    seconds: Median
    speedup: Median
    efficiency: Median
    parts: dict[str, float]
    """Median seconds of the parts of a step; what no part names is `other`."""
    items: float
    """Items per second of all ranks; 0 where the program does not report them."""
    samples: int
    launches: int


@dataclass(frozen=True)
class Curve:
    """The steps of one contestant from few nodes to many."""

    what: str
    contestant: str
    label: str
    """The contestant, as short as it can be told from the others."""
    number: int
    """Its place among the contestants of the report, which gives it its colour."""
    weak: bool
    points: list[Point] = field(default_factory=list)
    beyond: Beyond | None = None
    """What the model predicts for more nodes; None: it does not know this program."""


def curves(results: Results) -> list[Curve]:
    """The scaling curves of all steps.

    :raises ResultsError: a point has too few samples
    """
    several: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for key, case in results.cases.items():
        if key.kind == "step":
            several[key.what, key.contestant].append(case)
    found, predicted, known = [], beyond.predicted(results), contestants(results)
    order = list(known)
    for (what, contestant), cases in sorted(several.items(), key=lambda one: (one[0][0], order.index(one[0][1]))):
        cases.sort(key=lambda case: (case.key.nodes, case.key.ranks))
        weak = cases[0].facts.get("scaling", "weak") == "weak"
        points = _points(cases, weak)
        label = known[contestant]
        found.append(
            Curve(what, contestant, label, order.index(contestant), weak, points, predicted.get((what, contestant)))
        )
    return found


def contestants(results: Results) -> dict[str, str]:
    """All contestants with their labels, in the order of the arms in the study's file, others behind them."""
    arms = [arm for launch in results.launches for arm in launch.get("definition", {}).get("arms", {})]
    names = [*dict.fromkeys(arms)]
    keys = sorted(results.cases, key=lambda key: names.index(arm) if (arm := key.arm.split(" ")[0]) in names else 999)
    libraries: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        libraries[key.arm].add(key.library)
    return {k.contestant: k.arm if k.arm and len(libraries[k.arm]) == 1 else k.contestant for k in keys}


def _points(cases: list[Case], weak: bool) -> list[Point]:
    """The points of a curve: their times, speed-ups and efficiencies are of the same replicates."""
    several = [_resampled(case, stream) for stream, case in enumerate(cases)]
    return [_point(cases[0].key.ranks, case, one, several[0], weak) for case, one in zip(cases, several, strict=True)]


def _point(base_ranks: int, case: Case, one: Resampled, base: Resampled, weak: bool) -> Point:
    """The speed-up is the work per second relative to the fewest ranks; the efficiency is that divided by the ranks."""
    seconds = statistics.estimate(one)
    more = case.key.ranks / base_ranks
    factors = (more, 1.0) if weak else (1.0, 1 / more)
    speedup, efficiency = (
        Median(1, 1, 1) if one is base else statistics.estimate(one, base, factor, inverse=True) for factor in factors
    )
    launches = [case.launch == number for number in np.unique(case.launch)]
    parts = {name: float(np.median([np.median(v[one]) for one in launches])) for name, v in case.parts.items()}
    if parts and (rest := seconds.middle - sum(parts.values())) > 0.001 * seconds.middle:
        parts[OTHER] = rest
    items = float(case.facts.get("items") or 0) / seconds.middle
    return Point(
        case.key.nodes, case.key.ranks, seconds, speedup, efficiency, parts, items, len(case.samples), len(one.medians)
    )


def _resampled(case: Case, stream: int = 0) -> Resampled:
    """The launches of a case.

    :raises ResultsError: there are too few samples
    """
    if len(case.samples) < statistics.LEAST:
        key = case.key
        raise ResultsError(
            f"{key.what}, {key.contestant}, {key.ranks} ranks: {len(case.samples)} samples, and a report needs "
            f"{statistics.LEAST} of each point: run longer, or with more repetitions"
        )
    return statistics.resampled(case.by_launch(), stream)


def median(case: Case, factor: float = 1.0) -> Median:
    """The median of a case over its launches, times a factor.

    :raises ResultsError: there are too few samples
    """
    return statistics.estimate(_resampled(case), factor=factor)


@dataclass(frozen=True)
class Sizes:
    """A collective of one contestant on one number of ranks, from small to large."""

    title: str
    """Collective, dtype, ranks: contestants with the same title share a figure."""
    contestant: str
    label: str
    number: int
    bytes: list[int]
    seconds: list[Median]
    busbw: list[float]
    """Bytes per second."""


def by_size(results: Results) -> list[Sizes]:
    """Latency and bandwidth of all collectives.

    :raises ResultsError: a point has too few samples
    """
    several: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for key, case in results.cases.items():
        if key.kind == "collective":
            where = f"{key.ranks} rank{'s' * (key.ranks > 1)} on {key.nodes} node{'s' * (key.nodes > 1)}"
            several[f"{key.what}, {key.dtype}, {where}", key.contestant].append(case)
    found, known = [], contestants(results)
    for (title, contestant), cases in several.items():
        cases.sort(key=lambda case: case.key.bytes)
        seconds = [median(case) for case in cases]
        rates = [
            collectives.bandwidths(case.key.what, case.key.bytes, case.key.ranks, middle.middle)[1]
            for case, middle in zip(cases, seconds, strict=True)
        ]
        label, number = known[contestant], list(known).index(contestant)
        found.append(Sizes(title, contestant, label, number, [case.key.bytes for case in cases], seconds, rates))
    return found
