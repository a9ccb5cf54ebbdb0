# SPDX-License-Identifier: Apache-2.0
"""Medians with nonparametric intervals, and whether two sets of samples differ.

Times of communication are not normally distributed, so means and standard errors mislead; the median assumes no
distribution (Hoefler and Belli 2015, "Scientific Benchmarking of Parallel Computing Systems", rules 5 to 8). Samples of
one launch resemble each other more than those of two launches do (Hunold and Carpen-Amarie 2016, "Reproducible MPI
Benchmarking Is Still Not As Easy As You Think"). So what is said about a program is said over its launches, and in one
way: `estimate` gives times, speed-ups, efficiencies and ratios, from the replicates that `resampled` draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
LEAST = 6
"""Samples that the interval of one launch needs: of 5, even the smallest and the largest enclose the median in 94 % of
cases only."""
ENOUGH = 5
"""Launches from which on there is an interval over launches; fewer have a range."""
LAUNCHES = 6
"""Launches of each side from which on a comparison has a verdict."""
SIGNIFICANT = 0.05
RESAMPLES = 4000
"""Replicates of a bootstrap."""
Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Median:
    """A median, and its 95 % interval or its range."""

    middle: float
    low: float
    high: float
    ranged: bool = False
    """Whether `low` and `high` are the smallest and the largest value of a launch, as there are too few launches."""
    points: tuple[float, ...] = ()
    """The value of each launch."""

    @property
    def width(self) -> float:
        """Half of the interval, as a share of the median."""
        return (self.high - self.low) / 2 / self.middle if self.middle else math.inf


def order(n: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Find which order statistics enclose the median of a distribution with this confidence at least.

    The number of samples below the median is binomial with n and 1/2 (Le Boudec 2010, "Performance Evaluation of
    Computer and Communication Systems", theorem 2.1).

    :param n: how many samples there are
    :returns: two indices, from 0, into the sorted samples
    :raises ValueError: there are too few samples for an interval
    """
    if n < LEAST:
        raise ValueError(f"{n} samples: an interval of {confidence:.0%} needs {LEAST}")
    if n > 1000:  # the normal approximation is exact to one rank there
        half = 1.959964 * math.sqrt(n) / 2
        low = max(0, math.floor(n / 2 - half) - 1)
    else:
        below, total, low = 0, 1 << n, -1
        while 2 * (below + math.comb(n, low + 1)) <= (1 - confidence) * total:
            low += 1
            below += math.comb(n, low)
    return low, n - 1 - low


def median(samples: Sequence[float] | Samples) -> Median:
    """Give the median of one launch with its interval, which says nothing about another launch.

    :raises ValueError: there are too few samples for an interval
    """
    ordered = np.sort(np.asarray(samples, float))
    low, high = order(len(ordered))
    return Median(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))


@dataclass(frozen=True)
class Resampled:
    """A case as its launches give it."""

    medians: Samples
    """The median of each launch."""
    drawn: Samples
    """The median of the launches' medians in each replicate."""


def resampled(launches: Sequence[Samples], stream: int = 0) -> Resampled:
    """Draw launches, and then samples of each drawn launch.

    This is the bootstrap of clustered data (Davison and Hinkley 1997, "Bootstrap Methods and their Application",
    section 3.8). The same samples always give the same replicates.

    :param launches: the samples of each launch
    :param stream: cases that are divided by each other need different ones, for their launches are independent
    """
    random, count = np.random.default_rng([1, stream]), len(launches)
    chosen = random.integers(0, count, (RESAMPLES, count))
    medians = np.empty(chosen.shape)
    for number, samples in enumerate(launches):
        here = chosen == number
        medians[here] = _medians(samples, int(here.sum()), random)
    return Resampled(np.array([np.median(samples) for samples in launches]), np.median(medians, axis=1))


def _medians(samples: Samples, count: int, random: np.random.Generator) -> Samples:
    """Draw medians of resamples, each as large as the samples.

    A resample is n uniform numbers, each of which picks one of n sorted samples. Its median needs only their middle
    ones, and order statistics of uniform numbers have beta distributions (David and Nagaraja 2003, "Order Statistics",
    sections 2.1 and 2.5), so that the others are not drawn.
    """
    ordered, n = np.sort(samples), len(samples)
    middle = (n + 1) // 2
    lower = random.beta(middle, n - middle + 1, count)
    upper = lower if n % 2 else lower + (1 - lower) * random.beta(1, n - middle, count)
    places = [np.minimum((n * part).astype(int), n - 1) for part in (lower, upper)]
    both: Samples = (ordered[places[0]] + ordered[places[1]]) / 2
    return both


def estimate(case: Resampled, over: Resampled | None = None, factor: float = 1.0, inverse: bool = False) -> Median:
    """Give the median of the launches' medians, or the quotient of two of them, with its interval over launches.

    The interval is a percentile bootstrap (Efron and Tibshirani 1993). Both parts of a quotient are of the same
    replicate. With fewer launches than ENOUGH there is no interval, and the range of the launches is given.

    :param over: the case that this one is divided by
    :param factor: multiplies everything
    :param inverse: give 1 / the quotient, in which shorter times are larger, as in a speed-up
    """
    base = over or Resampled(np.ones(ENOUGH), np.ones(RESAMPLES))

    def value(times: Samples | np.float64, bases: Samples | np.float64) -> Any:
        return factor * (bases / times if inverse else times / bases)

    bases, middle = np.median(base.medians), np.median(case.medians)
    ranged = min(len(case.medians), len(base.medians)) < ENOUGH
    if ranged:
        pairs = value(case.medians[:, None], base.medians[None, :])
        low, high = np.min(pairs), np.max(pairs)
    else:
        low, high = np.quantile(value(case.drawn, base.drawn), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    points = tuple(value(case.medians, bases).tolist())
    return Median(float(value(middle, bases)), float(low), float(high), ranged, points)


@dataclass(frozen=True)
class Difference:
    """The second of two cases, compared with the first."""

    ratio: Median
    """The median of the second divided by that of the first."""
    p: float
    """Two-sided p-value of the Mann-Whitney test over the launches' medians; nan with too few launches."""
    launches: tuple[int, int]


def difference(first: Sequence[Samples], second: Sequence[Samples], needed: int = LAUNCHES) -> Difference:
    """Compare two cases, each a sequence of the samples of its launches.

    :param needed: launches of each side below which there is no test
    """
    from scipy.stats import mannwhitneyu

    sides = [resampled(side, stream) for stream, side in enumerate((first, second))]
    p = math.nan
    if min(len(first), len(second)) >= needed:
        p = float(mannwhitneyu(*(side.medians for side in sides), alternative="two-sided").pvalue)
    return Difference(estimate(sides[1], sides[0]), p, (len(first), len(second)))


def needed(tests: int) -> int:
    """Count the launches of each side without which no verdict is possible.

    n launches of each side have at best the p-value 2 / (2n over n), which is corrected for the number of tests.
    """
    n = LAUNCHES
    while 2 * tests >= SIGNIFICANT * math.comb(2 * n, n):
        n += 1
    return n


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests (Holm 1979): of many equal pairs some differ by chance."""
    corrected, worst = [0.0] * len(p_values), 0.0
    for place, i in enumerate(np.argsort(p_values)):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[i]))
        corrected[i] = worst
    return corrected
