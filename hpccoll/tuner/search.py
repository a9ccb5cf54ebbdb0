# SPDX-License-Identifier: Apache-2.0
"""The search for knobs: chooses the next ones to try, and the best ones, by measured steps only.

A search is a generator. It yields the knobs of the next sample, and receives the sample: seconds per reduced byte. Two
settings are compared by samples that alternate (A B B A), so that other load on the machine affects both, and by the
mean of the logarithms of their ratios with its 95 % interval (Student). The search changes one knob at a time, or two
that limit each other, up and down by factors of 4, and continues in a direction that is faster.

At the end it compares the best setting with the defaults in the same way, in new samples, so that a setting that was
faster by chance is not kept.
"""

import dataclasses
import math
import statistics
from collections.abc import Generator, Iterator
from typing import Any

__all__ = ["Knobs", "Outcome", "Ratio", "search"]

GAIN = 0.98
"""A setting is adopted if its time divided by that of the previous one is below this."""
LEAST, MOST = 4, 8
"""Least and most pairs of samples of a comparison."""
CONFIRM = 10
"""Pairs of samples of the final comparison."""
ROUNDS = 3
"""Times that each axis is looked at, at most."""
FACTOR = 4
BOUNDS = {
    "raise_bytes": (64 << 10, 1 << 30),
    "fusion_threshold": (64 << 10, 1 << 30),
    "raise_window": (0.0001, 0.05),
}
"""The least and the most that is tried; bytes, bytes, s."""
AXES = (("raise_bytes",), ("fusion_threshold",), ("raise_bytes", "fusion_threshold"), ("raise_window",))
"""Knobs that change together, in the order of the search. Two knobs limit a batch, the bytes that are raised at once
and the fusion threshold: a larger value of only one of them may have no effect."""
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
"""Quantiles 0.975 of Student's distribution with 1, 2, ... degrees of freedom."""


@dataclasses.dataclass(frozen=True)
class Knobs:
    """The knobs that change while a World runs; bytes, bytes, s."""

    fusion_threshold: int
    raise_bytes: int
    raise_window: float


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Time divided by another time: the estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a comparison or of the search."""

    knobs: Knobs
    """The best knobs."""
    ratio: Ratio | None
    """Their time divided by that of the knobs that they replace; None: the knobs do not change."""


Search = Generator[Knobs | Outcome, float, Outcome]
"""Yields knobs to measure, and adopted Outcomes, to which None is sent."""


def ratio_of(logarithms: list[float]) -> Ratio:
    """The geometric mean of ratios, given by their logarithms (two or more)."""
    mean = statistics.fmean(logarithms)
    half = _STUDENT[len(logarithms) - 2] * statistics.stdev(logarithms) / math.sqrt(len(logarithms))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def compare(old: Knobs, new: Knobs, least: int = LEAST, most: int = MOST) -> Generator[Knobs, float, Ratio]:
    """Measure two settings in turn until it is clear that `new` gains or that it does not, or `most` pairs are there.

    :returns: the time with `new` divided by that with `old`
    """
    logarithms: list[float] = []
    while True:
        if len(logarithms) % 2:
            after = yield new
            before = yield old
        else:
            before = yield old
            after = yield new
        logarithms.append(math.log(after / before))
        if len(logarithms) < least:
            continue
        ratio = ratio_of(logarithms)
        if len(logarithms) == most or ratio.high < GAIN or ratio.low > GAIN:
            return ratio


def _scaled(knobs: Knobs, name: str, factor: float) -> float | None:
    """The next value of a knob in a direction; None: it is at its bound."""
    low, high = BOUNDS[name]
    value: float = getattr(knobs, name)
    value = max(value * factor, low) if factor > 1 else min(value * factor, high)
    if not low <= value <= high:
        return None
    return round(value, 9) if name == "raise_window" else int(value)


def _candidates(knobs: Knobs, axis: tuple[str, ...], factor: float) -> Iterator[Knobs]:
    """Yield settings at growing distance from `knobs` in one direction, up to the bounds."""
    while True:
        changed: dict[str, Any] = {name: _scaled(knobs, name, factor) for name in axis}
        if None in changed.values():
            return
        knobs = dataclasses.replace(knobs, **changed)
        yield knobs


def _walk(best: Knobs, axis: tuple[str, ...]) -> Search:
    """Search one axis upwards, and if that does not help downwards, as long as the time improves."""
    start = best
    for factor in (FACTOR, 1 / FACTOR):
        for candidate in _candidates(start, axis, factor):
            ratio = yield from compare(best, candidate)
            if ratio.value >= GAIN or ratio.high >= 1:
                break
            best = candidate
            yield Outcome(best, ratio)
        if best != start:
            break
    return Outcome(best, None)


def search(defaults: Knobs) -> Search:
    """Search for knobs with which the program's steps take less time than with `defaults`.

    :returns: `defaults` without a ratio, or significantly faster knobs, with their ratio to the defaults
    """
    best = defaults
    settled = 0
    for axis in AXES * ROUNDS:
        found = (yield from _walk(best, axis)).knobs
        settled = settled + 1 if found == best else 1
        best = found
        if settled == len(AXES):
            break
    if best == defaults:
        return Outcome(defaults, None)
    ratio = yield from compare(defaults, best, CONFIRM, CONFIRM)
    return Outcome(best, ratio) if ratio.high < 1 else Outcome(defaults, None)
