# SPDX-License-Identifier: Apache-2.0
"""The data of a report's figures and tables: medians, speed-up and efficiency, each with its interval."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from hpccoll.tools.bench import collectives, statistics
from hpccoll.tools.bench.results import Case, Results, ResultsError
from hpccoll.tools.bench.statistics import Median
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
    weak: bool
    points: list[Point] = field(default_factory=list)
    beyond: Beyond | None = None
    """What the model predicts for more nodes; None: it does not know this program."""


def curves(results: Results) -> list[Curve]:
    """The scaling curves of all steps.

    :raises ResultsError: a point has too few samples for an interval
    """
    several: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for key, case in results.cases.items():
        if key.kind == "step":
            several[key.what, key.contestant].append(case)
    found, predicted = [], beyond.predicted(results)
    for (what, contestant), cases in sorted(several.items()):
        cases.sort(key=lambda case: (case.key.nodes, case.key.ranks))
        weak = cases[0].facts.get("scaling", "weak") == "weak"
        points = [_point(cases[0], case, weak) for case in cases]
        found.append(Curve(what, contestant, weak, points, predicted.get((what, contestant))))
    return found


def _point(base: Case, case: Case, weak: bool) -> Point:
    """The speed-up is the work per second relative to the fewest ranks; the efficiency is that divided by the ranks."""
    seconds = median(case)
    more = case.key.ranks / base.key.ranks
    ratio = Median(1, 1, 1) if case is base else statistics.ratio(case.by_launch(), base.by_launch())
    speedup, efficiency = (scaled(ratio, more), ratio) if weak else (ratio, scaled(ratio, 1 / more))
    parts = {name: float(np.median(values)) for name, values in case.parts.items()}
    if parts and (rest := seconds.middle - sum(parts.values())) > 0.001 * seconds.middle:
        parts[OTHER] = rest
    items = float(case.facts.get("items") or 0) / seconds.middle
    return Point(
        case.key.nodes, case.key.ranks, seconds, speedup, efficiency, parts, items, len(case.samples),
        len(case.by_launch()),
    )  # fmt: skip


def median(case: Case) -> Median:
    """The median of a case.

    :raises ResultsError: there are too few samples for its interval
    """
    try:
        return statistics.median(case.samples)
    except ValueError as error:
        key = case.key
        raise ResultsError(
            f"{key.what}, {key.contestant}, {key.ranks} ranks: {error}, and a report draws intervals: run longer, or "
            "with more repetitions"
        ) from None


def scaled(value: Median, factor: float) -> Median:
    """A median times a constant."""
    return Median(value.middle * factor, value.low * factor, value.high * factor)


@dataclass(frozen=True)
class Sizes:
    """A collective of one contestant on one number of ranks, from small to large."""

    title: str
    """Collective, dtype, ranks: contestants with the same title share a figure."""
    contestant: str
    bytes: list[int]
    seconds: list[Median]
    busbw: list[float]
    """Bytes per second."""


def by_size(results: Results) -> list[Sizes]:
    """Latency and bandwidth of all collectives.

    :raises ResultsError: a point has too few samples for an interval
    """
    several: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for key, case in results.cases.items():
        if key.kind == "collective":
            where = f"{key.ranks} rank{'s' * (key.ranks > 1)} on {key.nodes} node{'s' * (key.nodes > 1)}"
            several[f"{key.what}, {key.dtype}, {where}", key.contestant].append(case)
    found = []
    for (title, contestant), cases in several.items():
        cases.sort(key=lambda case: case.key.bytes)
        seconds = [median(case) for case in cases]
        rates = [
            collectives.bandwidths(case.key.what, case.key.bytes, case.key.ranks, middle.middle)[1]
            for case, middle in zip(cases, seconds, strict=True)
        ]
        found.append(Sizes(title, contestant, [case.key.bytes for case in cases], seconds, rates))
    return found
