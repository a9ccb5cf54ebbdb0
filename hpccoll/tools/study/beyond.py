# SPDX-License-Identifier: Apache-2.0
"""The model's predictions for more nodes than a study has measured, drawn beside the curves in another style."""

from dataclasses import dataclass

from hpccoll.tools.bench.results import Case, Results, ResultsError
from hpccoll.tools.bench.statistics import Median
from hpccoll.tools.model import fit

TIMES = 16
"""A prediction goes up to so many times the nodes that were measured."""


@dataclass(frozen=True)
class Beyond:
    """The predicted continuation of a curve, which begins at its last measured point."""

    nodes: tuple[int, ...]
    seconds: tuple[Median, ...]
    efficiency: tuple[Median, ...]
    error: float
    """The relative error with which the model explains the measured points of this curve."""


def predicted(results: Results) -> dict[tuple[str, str], Beyond]:
    """Predict the continuations of the curves that the model covers: steps of `bench training` on two numbers of nodes.

    :returns: by what was measured and the contestant, as curves.Curve has them
    """
    several: dict[tuple[str, str], list[Case]] = {}
    for key, case in results.cases.items():
        if key.kind == "step" and fit.predictor(case, fit.knobs_of(case, results)):
            several.setdefault((key.what, key.contestant), []).append(case)
    found = {}
    for name, cases in several.items():
        cases.sort(key=lambda case: case.key.nodes)
        alike = {(case.key.library, case.key.arm) for case in cases}
        if cases[0].key.nodes < cases[-1].key.nodes and len(alike) == 1:
            found[name] = _beyond(results, cases)
    return {name: one for name, one in found.items() if one}


def _beyond(results: Results, cases: list[Case]) -> Beyond | None:
    """Fit to the steps of this curve and to all collectives of the same arm, on any number of nodes."""
    collectives = {key: case for key, case in results.cases.items()
                   if key.kind == "collective" and key.arm == cases[0].key.arm}  # fmt: skip
    own = Results(results.launches, collectives | {case.key: case for case in cases})
    try:
        fitted = fit.fit(own)
    except ResultsError:  # too few cases
        return None
    first, last = cases[0], cases[-1]
    nodes = [last.key.nodes]
    while nodes[-1] < TIMES * last.key.nodes:
        nodes.append(2 * nodes[-1])
    strong = last.facts.get("scaling") == "strong"
    knobs = fit.knobs_of(last, results)
    base = fit.predictor(first, knobs)
    seconds, efficiency = [], []
    for n in nodes:
        at = fit.predictor(last, knobs, n)
        assert at and base
        try:
            values = Median(*fitted.interval(at, last.key.bytes))
        except fit.UndeterminedError:
            return None
        ideal = base(fitted.parameters) * (first.key.nodes / n if strong else 1)
        seconds.append(values)
        efficiency.append(Median(ideal / values.middle, ideal / values.high, ideal / values.low))
    return Beyond(tuple(nodes), tuple(seconds), tuple(efficiency), fitted.error(last.key.bytes))
