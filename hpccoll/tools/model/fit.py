# SPDX-License-Identifier: Apache-2.0
"""Fits the model's parameters to measured times, with intervals.

Least squares of the logarithms, because times span six decades; a loss that grows slowly beyond 10 % keeps one
disturbed case from moving all others. Intervals are those of nonlinear regression (Seber and Wild 1989, chapter 5): the
derivatives at the best parameters and the scatter of the cases around the fit give a covariance of the parameters'
logarithms. An interval is symmetric on that scale, so it holds its estimate. Launches that are drawn anew (Efron and
Tibshirani 1993) give a second covariance, as the cases of a launch are disturbed together; the wider interval counts.
The interval of a prediction is one of the median of a launch, so the errors of fitted launches widen it.

What no case determines keeps the wide distribution that it had before anything was measured. So its interval is wide,
and a prediction that depends on it is refused.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll import _core, durable
from hpccoll.tools.bench import statistics, training
from hpccoll.tools.bench.results import Case, Facts, Results, ResultsError
from hpccoll.tools.model import predict
from hpccoll.tools.model.messages import SIZES
from hpccoll.tools.model.predict import NAMES, Layout, Parameters

DRAWS = 400
"""The number of bootstrap samples of the launches."""
DETERMINED = 3.0
"""The largest ratio of the end of an interval to its estimate; what is wider is not determined."""
NEAR = 3
"""The number of fitted sizes, nearest to that of a prediction, whose launches' errors widen its interval."""
FORMAT, VERSION = "hpccoll model", 3
NORMAL = 1.96
"""Quantile of an interval of 95 %."""
PRIOR = 3.0
"""Standard deviation of the logarithm of a parameter before anything is measured: a factor of 20 either way."""
LEAST_ERROR = 0.03
"""The smallest relative error that a measured median is assumed to have."""
BELIEVED = 4
"""The weight, in cases, of the medians' errors against the scatter around the fit."""
STEP = 0.02
"""The step of a logarithm for derivatives."""
MATTERS = 0.02
"""A prediction depends on a parameter if a factor of e in it changes the prediction by more."""
DETERMINING = {
    "hop": "barriers on one node, with two numbers of ranks there (bench barrier --named)",
    "edge": "a barrier on two nodes (bench barrier --named)",
    "batch": "barriers on one node, with two numbers of ranks there (bench barrier --named)",
    "touch": "an allreduce of 1 MiB or more on one node",
    "alpha": "allreduces of 8 B and 64 KiB on two nodes, and a barrier there",
    "overhead": "a barrier and an allreduce of 8 B on four nodes, or on two hosts with HPCCOLL_NODES=2 (bench --named)",
    "beta": "an allreduce of 4 MiB or more on two nodes",
    "start": "bench startup, with two numbers of virtual ranks",
    "member": "bench startup, with two numbers of virtual ranks",
}
"""For each parameter, a description of cases that determine it."""
STARTS = [Parameters(edge=latency, alpha=latency, beta=beta, touch=touch)
          for latency in (1e-6, 3e-5, 1e-3) for beta in (1e-11, 1e-9, 1e-7) for touch in (1e-10, 3e-9)]  # fmt: skip
"""The starting points of the search: from supercomputers to emulated networks on one loaded machine."""
FIRST_STEPS, GO_ON = 6, 3
"""Steps that the search makes from each starting point; number of best points from which it continues."""
Vector = NDArray[np.float64]


class UndeterminedError(ResultsError):
    """The fitted cases do not determine the prediction; the text names a case that would."""


@dataclass(frozen=True)
class Fitted:
    """Parameters with their uncertainty, and the fitted cases."""

    parameters: Parameters
    covariance: tuple[tuple[float, ...], ...]
    """The covariance of the parameters' logarithms, by the scatter of the cases around the fit."""
    of_launches: tuple[tuple[float, ...], ...]
    """The same by launches that are drawn anew; zeros with fewer launches than an interval needs."""
    freedom: float
    """Degrees of freedom of the first covariance."""
    free: dict[str, tuple[float, float]]
    """For parameters that derivatives do not determine, the values between which the cases hardly notice a change."""
    launches: int
    """The smallest number of launches of a case."""
    residuals: tuple[tuple[int, float], ...]
    """Bytes, and the logarithm of predicted over measured seconds, of each launch of the fitted cases between nodes, or
    of all fitted cases if none is between nodes."""
    cases: int
    nodes: tuple[int, ...]
    per_node: int
    source: str = ""

    @property
    def unknown(self) -> tuple[str, ...]:
        """The parameters that the cases do not determine."""
        return tuple(self.free)

    def factor(self, derivatives: Vector) -> float:
        """Return the ratio of the end of a 95 % interval to the estimate.

        :param derivatives: of the estimate's logarithm by those of the parameters
        """
        spread = [math.sqrt(max(0.0, float(derivatives @ np.array(found) @ derivatives)))
                  for found in (self.covariance, self.of_launches)]  # fmt: skip
        return math.exp(min(100.0, max(_student(self.freedom) * spread[0], NORMAL * spread[1])))

    def range(self, name: str) -> tuple[float, float]:
        """Return the 95 % interval of a parameter."""
        value, factor = getattr(self.parameters, name), self.factor(_unit(name))
        return value / factor, value * factor

    def error(self, nbytes: int) -> float:
        """Return the relative error of launches of the fitted cases whose sizes are nearest to this one."""
        return math.exp(self._scatter(nbytes)[0]) - 1

    def _scatter(self, nbytes: int) -> tuple[float, int]:
        """Return the root mean square of the errors' logarithms at the nearest sizes, and the number of errors."""
        by_distance = sorted(
            {size for size, _ in self.residuals}, key=lambda size: abs(math.log((size + 1) / (nbytes + 1)))
        )
        off = [found for size, found in self.residuals if size in by_distance[:NEAR]]
        return math.sqrt(sum(one * one for one in off) / len(off)), len(off)

    def interval(self, seconds: Callable[[Parameters], float], nbytes: int) -> tuple[float, float, float]:
        """Return a prediction and the 95 % interval of a launch's median: the errors at this size widen it.

        :raises UndeterminedError: the fitted cases do not determine it
        """
        slopes = derivatives([seconds], self.parameters)[0]
        factor, middle = self.factor(slopes), seconds(self.parameters)
        low, high = middle / factor, middle * factor
        missing = {name for name in self.unknown if factor > DETERMINED and abs(slopes[NAMES.index(name)]) > MATTERS}
        for name, ends in self.free.items():
            there = [seconds(dataclasses.replace(self.parameters, **{name: value})) for value in ends]
            low, high = min(low, *there), max(high, *there)
            if min(there) < middle / DETERMINED or max(there) > middle * DETERMINED:
                missing.add(name)
        if low < middle / DETERMINED or high > middle * DETERMINED:
            cases = dict.fromkeys(DETERMINING[name] for name in NAMES if name in missing)
            names = ", ".join(name for name in NAMES if name in missing) or "what the cases show too inaccurately"
            raise UndeterminedError(f"it depends on {names}: measure {'; '.join(cases) or 'more launches'}")
        scatter, count = self._scatter(nbytes)
        off = _student(count) * scatter
        low, high = (math.exp(math.hypot(off, math.log(end / middle))) for end in (low, high))
        return middle, middle / low, middle * high

    def write(self, path: Path) -> None:
        """Write a file of JSON."""
        values = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        durable.write_text(path, json.dumps(values, indent=1) + "\n")


def _student(freedom: float) -> float:
    """Return the quantile of an interval of 95 % with these degrees of freedom."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def _unit(name: str) -> Vector:
    return np.asarray(np.eye(len(NAMES))[NAMES.index(name)], np.float64)


def derivatives(predictors: Sequence[Callable[[Parameters], float]], at: Parameters) -> Vector:
    """Return the derivatives of the logarithms of predictions by those of the parameters, a row per prediction."""
    middle, columns = np.log(dataclasses.astuple(at)), []
    for unit in np.eye(len(NAMES)):
        two = [Parameters(*np.exp(middle + side * STEP * unit).tolist()) for side in (1, -1)]
        columns.append([math.log(found(two[0]) / found(two[1])) / (2 * STEP) for found in predictors])
    return np.asarray(np.array(columns).T, np.float64)


def read(path: Path) -> Fitted:
    """Read a file that `write` wrote.

    :raises ResultsError: the file is not such a file
    """
    try:
        found = json.loads(path.read_text())
        if found.pop("format") != FORMAT or found.pop("version") != VERSION:
            raise KeyError
        found["parameters"] = Parameters(**found["parameters"])
        found["free"] = {name: (low, high) for name, (low, high) in found["free"].items()}
        for name in ("covariance", "of_launches"):
            found[name] = _rows(np.array(found[name]))
        found["nodes"] = tuple(found["nodes"])
        found["residuals"] = tuple((size, off) for size, off in found["residuals"])
        return Fitted(**found)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ResultsError(f"{path}: not a file of this version's `hpccoll model fit`") from None


def _rows(matrix: Vector) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


# ---- from a case to its prediction ---------------------------------------------------------------------------


def layout(case: Case, knobs: Facts, nodes: int = 0) -> Layout:
    """Return the layout and knobs of a case, or the same for another number of nodes."""
    key = case.key
    known = {
        name: knobs[name]
        for name in ("fanout", "algorithm", "rails", "chunk_bytes", "wire", "latency_bytes")
        if name in knobs
    }
    return Layout(nodes or key.nodes, key.ranks // key.nodes, **known)


def knobs_of(case: Case, results: Results) -> Facts | None:
    """Return the knobs of a case's first launch; None: it is an arm of `hpccoll bench`, whose knobs no file keeps."""
    if case.facts.get("knobs of", case.key.arm) and "scaling" not in case.facts:
        return None
    launch = results.launches[int(case.launch[0])]
    return dict(launch.get("knobs", {}))


def _apart(case: Case) -> bool:
    """Return whether a case is one of calls without an agreement: plans, and short unnamed calls."""
    style, key = case.facts.get("style", "named"), case.key
    short = _core.shortcut_bytes(key.ranks) if key.nodes == 1 else _core.vote_bytes(key.nodes)
    return style == "plan" or (style == "unnamed" and key.bytes <= short)


def predictor(case: Case, knobs: Facts | None, nodes: int = 0) -> Callable[[Parameters], float] | None:
    """Return a function from parameters to the seconds of a case; None: the model does not cover it.

    :param nodes: predict for this number of nodes; 0: for the number of the case
    """
    key = case.key
    if key.kind == "start" and key.what.startswith("init,"):
        ranks = key.ranks // key.nodes * nodes if nodes else key.ranks
        return lambda p: predict.init_computes(p, ranks)
    if knobs is None or key.library != "hpccoll" or key.memory != "host" or key.ranks % key.nodes or _apart(case):
        return None
    where = layout(case, knobs, nodes)
    if key.kind == "collective" and key.what == "barrier":
        return lambda p: predict.agree(p, where) + p.batch
    if key.kind == "collective" and key.what == "allreduce" and key.dtype in SIZES:
        return lambda p: predict.allreduce(p, where, key.dtype, key.bytes)
    model = key.what.split()[1].rstrip(",") if key.what.startswith(f"{training.NAME} ") else ""
    if key.kind != "step" or not model or "compute" not in case.parts:
        return None
    try:
        trace = training.trace(model)
    except ResultsError:
        return None
    compute = float(np.median(case.parts["compute"]))
    if nodes and case.facts.get("scaling") == "strong":
        compute *= key.nodes / nodes
    gradients = [(n, share * compute) for n, share in zip(trace.elements, trace.ready, strict=True)]
    return lambda p: predict.step(p, where, gradients, compute).seconds


# ---- the fit -------------------------------------------------------------------------------------------------


def fit(results: Results, most_nodes: int = 0, arm: str | None = None, source: str = "") -> Fitted:
    """Fit the parameters to the cases that the model covers: allreduces, barriers and steps of training.

    :param most_nodes: leave out cases on more nodes; 0: take all
    :param arm: only cases of this arm; None: all
    :raises ResultsError: there are too few cases
    """
    known = [(case, found) for case in results.cases.values() if (found := predictor(case, knobs_of(case, results)))]
    chosen = [(case, found) for case, found in known
              if (not most_nodes or case.key.nodes <= most_nodes) and arm in (None, case.key.arm)]  # fmt: skip
    if len(chosen) < 3:
        raise ResultsError(
            f"{len(chosen)} cases that the model knows (allreduce, barrier or training of hpccoll, in host memory, as "
            "many ranks on each node; small calls with a name only): it needs 3 at least, better on one node and on "
            "two: hpccoll bench barrier allreduce --named --sizes 8:4M:8"
        )
    cases, predictors = [case for case, _ in chosen], [found for _, found in chosen]
    medians, errors = _observed(cases)
    begun = sorted(
        (_solve(predictors, medians, errors, start, FIRST_STEPS) for start in STARTS), key=lambda solved: solved[1]
    )
    best, _ = min(
        (_solve(predictors, medians, errors, found) for found, _ in begun[:GO_ON]), key=lambda solved: solved[1]
    )
    covariance, gain, freedom = _uncertain(predictors, medians, errors, best)
    of_launches = _of_launches(cases, medians, gain)
    together = [case.key for case in cases if case.key.kind != "start"] or [case.key for case in cases]
    most = max(key.nodes for key in together)
    several = zip(cases, predictors, strict=True)
    off = tuple((case.key.bytes, math.log(found(best) / float(np.median(launch)))) for case, found in several
                if case.key in together and case.key.nodes >= min(2, most) for launch in case.by_launch())  # fmt: skip
    fitted = Fitted(
        best, _rows(covariance), _rows(of_launches), freedom, {},
        min(len(case.by_launch()) for case in cases), off, len(cases),
        tuple(sorted({key.nodes for key in together})), together[-1].ranks // together[-1].nodes, source,
    )  # fmt: skip
    wide = [name for name in NAMES if fitted.factor(_unit(name)) > DETERMINED]
    return dataclasses.replace(fitted, free={name: _free(name, predictors, medians, errors, best) for name in wide})


def _free(
    name: str, predictors: Sequence[Callable[[Parameters], float]], medians: Vector, errors: Vector, best: Parameters
) -> tuple[float, float]:
    """Return the values of a parameter between which the cases hardly notice a change of it alone.

    Derivatives do not show them: the bytes of a fast link cost nothing beside slow copies, those of a slow link much.
    """

    def minds(factor: float) -> bool:
        p = dataclasses.replace(best, **{name: getattr(best, name) * factor})
        off = np.log(np.array([found(p) for found in predictors]) / medians) / errors
        return float(off @ off) > least + NORMAL**2 * max(1.0, least / len(medians))

    off = np.log(np.array([found(best) for found in predictors]) / medians) / errors
    least, ends = float(off @ off), list[float]()
    for side in (-1, 1):
        inside, outside = 0.0, NORMAL * PRIOR
        if not minds(math.exp(side * outside)):
            inside = outside
        while outside - inside > 0.1:
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if minds(math.exp(side * middle)) else (middle, outside)
        ends.append(getattr(best, name) * math.exp(side * inside))
    return ends[0], ends[1]


def _uncertain(
    predictors: Sequence[Callable[[Parameters], float]], medians: Vector, errors: Vector, best: Parameters
) -> tuple[Vector, Vector, float]:
    """Return the covariance of the parameters' logarithms, and how each median moves them.

    :returns: the covariance; its product with the logarithms by which medians differ; the degrees of freedom
    """
    slopes = derivatives(predictors, best) / errors[:, None]
    off = np.log(np.array([found(best) for found in predictors]) / medians) / errors
    before = np.eye(len(NAMES)) / PRIOR**2
    used = float(np.trace(np.linalg.solve(slopes.T @ slopes + before, slopes.T @ slopes)))
    freedom = max(0.0, len(medians) - used) + BELIEVED
    scatter = (float(off @ off) + BELIEVED) / freedom
    covariance = np.asarray(np.linalg.inv(slopes.T @ slopes / scatter + before), np.float64)
    return covariance, covariance @ (slopes / errors[:, None]).T / scatter, freedom


def _of_launches(cases: Sequence[Case], medians: Vector, gain: Vector) -> Vector:
    """Return the covariance of the parameters' logarithms over launches that are drawn anew.

    The cases of a launch are drawn together: what disturbs a launch disturbs all of them.
    """
    random, drawn = np.random.default_rng(1), dict[tuple[int, ...], Any]()
    moved = np.zeros((len(cases), DRAWS))
    for i, (case, middle) in enumerate(zip(cases, medians, strict=True)):
        launches = tuple(np.unique(case.launch).tolist())
        if len(launches) < statistics.ENOUGH:
            continue
        if launches not in drawn:
            drawn[launches] = random.integers(0, len(launches), (DRAWS, len(launches)))
        of_each = np.array([np.median(samples) for samples in case.by_launch()])
        moved[i] = np.log(np.median(of_each[drawn[launches]], axis=1) / middle)
    return np.asarray(np.cov(gain @ moved), np.float64)


def median(case: Case) -> float:
    """Return the median of the medians of a case's launches, in seconds."""
    return float(np.median([np.median(launch) for launch in case.by_launch()]))


def _observed(cases: Sequence[Case]) -> tuple[Vector, Vector]:
    """Medians, and the relative error of each."""
    medians = np.array([median(case) for case in cases])
    spread = [float(np.subtract(*np.quantile(case.samples, [0.75, 0.25]))) for case in cases]
    errors = [max(LEAST_ERROR, s / m / math.sqrt(len(case.samples)))
              for s, m, case in zip(spread, medians, cases, strict=True)]  # fmt: skip
    return medians, np.array(errors)


def _solve(
    predictors: Sequence[Callable[[Parameters], float]],
    medians: Vector,
    errors: Vector,
    start: Parameters,
    steps: int | None = None,
) -> tuple[Parameters, float]:
    """Return the best parameters near a start, or those after so many steps, and the sum of the residuals."""
    from scipy.optimize import least_squares

    begin, prior = np.log(dataclasses.astuple(start)), np.log(dataclasses.astuple(Parameters()))

    def off(logarithms: Vector) -> Vector:
        p = Parameters(*np.exp(logarithms).tolist())
        predicted = np.array([found(p) for found in predictors])
        return np.concatenate([np.log(predicted / medians) / errors, (logarithms - prior) / PRIOR])

    found: Any = least_squares(off, begin, loss="soft_l1", f_scale=3.0, x_scale=1.0, max_nfev=steps)
    return Parameters(*np.exp(found.x).tolist()), float(found.cost)
