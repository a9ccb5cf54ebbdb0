# SPDX-License-Identifier: Apache-2.0
"""Fits the model's parameters to measured times, with intervals.

Least squares of the logarithms, because times span six decades; a loss that grows slowly beyond 10 % keeps one
disturbed case from moving all others. Parameters without an influence on any case stay near the start of the search,
and are marked. Intervals: the launches and samples of each case are resampled, and the fit is repeated (Efron and
Tibshirani 1993).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll import durable
from hpccoll.tools.bench import statistics, training
from hpccoll.tools.bench.results import Case, Facts, Results, ResultsError
from hpccoll.tools.model import predict
from hpccoll.tools.model.messages import SIZES
from hpccoll.tools.model.predict import NAMES, Layout, Parameters

RESAMPLES = 50
NEAR = 3
"""Fitted cases whose errors tell how far a prediction may be off."""
SHORTCUT_BYTES = 1024
"""Up to this size, calls without a name take the shortcut in a node (decision 41)."""
FORMAT = "hpccoll model"
PRIOR = 3.0
"""Standard deviation of the logarithm of a parameter before anything is measured: a factor of 20 either way."""
LEAST_ERROR = 0.03
"""Relative error below which a measured median is not believed."""
STARTS = [Parameters(edge=latency, alpha=latency, beta=beta, touch=touch)
          for latency in (1e-6, 3e-5, 1e-3) for beta in (1e-11, 1e-9, 1e-7) for touch in (1e-10, 3e-9)]  # fmt: skip
"""The starting points of the search: from supercomputers to emulated networks on one loaded machine."""
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """Parameters with their intervals, and the fitted cases."""

    parameters: Parameters
    drawn: tuple[Parameters, ...]
    """The parameters of each resampled set."""
    unknown: tuple[str, ...]
    """Parameters that no case depends on."""
    residuals: tuple[tuple[int, float], ...]
    """Bytes, and the logarithm of predicted over measured seconds, of the fitted cases on the most nodes."""
    cases: int
    nodes: tuple[int, ...]
    per_node: int
    source: str = ""

    def error(self, nbytes: int) -> float:
        """Return the relative error of the fitted cases whose sizes are nearest to this one."""
        near = sorted(self.residuals, key=lambda residual: abs(math.log((residual[0] + 1) / (nbytes + 1))))[:NEAR]
        return math.exp(math.sqrt(sum(off * off for _, off in near) / len(near))) - 1

    def interval(self, seconds: Callable[[Parameters], float], nbytes: int) -> tuple[float, float, float]:
        """Return a prediction and its interval: 95 % of the resampled sets, widened by the fit's error at this size."""
        values = [seconds(parameters) for parameters in self.drawn]
        low, high = np.quantile(values, [0.025, 0.975])
        wider = 1 + self.error(nbytes)
        return seconds(self.parameters), float(low) / wider, float(high) * wider

    def write(self, path: Path) -> None:
        """Write a file of JSON."""
        values = {"format": FORMAT, "version": 1, **dataclasses.asdict(self)}
        durable.write_text(path, json.dumps(values, indent=1) + "\n")


def read(path: Path) -> Fitted:
    """Read what `write` wrote.

    :raises ResultsError: it is something else
    """
    try:
        found = json.loads(path.read_text())
        if found.pop("format") != FORMAT or found.pop("version") != 1:
            raise KeyError
        found["parameters"] = Parameters(**found["parameters"])
        found["drawn"] = tuple(Parameters(**values) for values in found["drawn"])
        found["unknown"], found["nodes"] = tuple(found["unknown"]), tuple(found["nodes"])
        found["residuals"] = tuple((size, off) for size, off in found["residuals"])
        return Fitted(**found)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ResultsError(f"{path}: not a file of `hpccoll model fit`") from None


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
    """Return whether a case is one of calls without an agreement: plans, and short unnamed calls in a node."""
    style, key = case.facts.get("style", "named"), case.key
    return style == "plan" or (style == "unnamed" and key.nodes == 1 and key.bytes <= SHORTCUT_BYTES)


def predictor(case: Case, knobs: Facts | None, nodes: int = 0) -> Callable[[Parameters], float] | None:
    """Return a function from parameters to the seconds of a case; None: the model does not cover it.

    :param nodes: as it would be on so many nodes; 0: as it was
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
    :raises ResultsError: there are too few
    """
    known = [(case, found) for case in results.cases.values() if (found := predictor(case, knobs_of(case, results)))]
    chosen = [(case, found) for case, found in known
              if (not most_nodes or case.key.nodes <= most_nodes) and arm in (None, case.key.arm)]  # fmt: skip
    if len(chosen) < 3:
        raise ResultsError(
            f"{len(chosen)} cases that the model knows (allreduce, barrier or training of hpccoll, in host memory, as "
            "many ranks on each node): it needs 3 at least, better on one node and on two: hpccoll bench barrier "
            "allreduce --sizes 8:4M:8"
        )
    cases, predictors = [case for case, _ in chosen], [found for _, found in chosen]
    medians, errors = _observed(cases)
    best, influence, _ = min((_solve(predictors, medians, errors, start) for start in STARTS), key=lambda one: one[2])
    replicates = [statistics.resampled(case.by_launch(), stream).drawn for stream, case in enumerate(cases)]
    drawn = [_solve(predictors, np.array([one[i] for one in replicates]), errors, best)[0] for i in range(RESAMPLES)]
    together = [case.key for case in cases if case.key.kind != "start"] or [case.key for case in cases]
    most = max(key.nodes for key in together)
    several = zip(cases, predictors, medians, strict=True)
    off = tuple((case.key.bytes, math.log(found(best) / m))
                for case, found, m in several if case.key in together and case.key.nodes == most)  # fmt: skip
    return Fitted(
        best, tuple(drawn), tuple(name for name, known in zip(NAMES, influence, strict=True) if not known),
        off, len(cases), tuple(sorted({key.nodes for key in together})),
        together[-1].ranks // together[-1].nodes, source,
    )  # fmt: skip


def _observed(cases: Sequence[Case]) -> tuple[Vector, Vector]:
    """Medians, and the relative error of each."""
    medians = np.array([np.median([np.median(launch) for launch in case.by_launch()]) for case in cases])
    spread = [float(np.subtract(*np.quantile(case.samples, [0.75, 0.25]))) for case in cases]
    errors = [max(LEAST_ERROR, s / m / math.sqrt(len(case.samples)))
              for s, m, case in zip(spread, medians, cases, strict=True)]  # fmt: skip
    return medians, np.array(errors)


def _solve(
    predictors: Sequence[Callable[[Parameters], float]], medians: Vector, errors: Vector, start: Parameters
) -> tuple[Parameters, list[bool], float]:
    """Return the best parameters near a start, whether any case depends on each, and the residuals."""
    from scipy.optimize import least_squares

    begin, prior = np.log(dataclasses.astuple(start)), np.log(dataclasses.astuple(Parameters()))

    def off(logarithms: Vector) -> Vector:
        p = Parameters(*np.exp(logarithms).tolist())
        predicted = np.array([found(p) for found in predictors])
        return np.concatenate([np.log(predicted / medians) / errors, (logarithms - prior) / PRIOR])

    found: Any = least_squares(off, begin, loss="soft_l1", f_scale=3.0, x_scale=1.0)
    influence = np.abs(found.jac[: len(predictors)]).max(axis=0) > 1.0
    return Parameters(*np.exp(found.x).tolist()), influence.tolist(), float(found.cost)
