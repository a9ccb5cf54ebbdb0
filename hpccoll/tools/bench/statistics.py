# SPDX-License-Identifier: Apache-2.0
"""Medians with nonparametric intervals, and whether two sets of samples differ.

Times of communication are not normally distributed, so means and standard errors mislead; the median and its order
statistics assume no distribution (Hoefler and Belli 2015, "Scientific Benchmarking of Parallel Computing Systems",
rules 5 to 8). Samples of one launch resemble each other more than those of two launches do (Hunold and Carpen-Amarie
2016, "Reproducible MPI Benchmarking Is Still Not As Easy As You Think"): so comparisons resample launches first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
LEAST = 6
"""Samples that an interval needs: of 5, even the smallest and the largest enclose the median in 94 % of cases only."""
LAUNCHES = 6
"""Launches from which on the medians of launches are compared, instead of all samples."""
RESAMPLES, STEP = 2000, 100
"""Resampled sets of a bootstrap, and how many of them are drawn at once."""
Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Median:
    """A median and its 95 % interval."""

    middle: float
    low: float
    high: float

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
    """Give the median with its interval.

    :raises ValueError: there are too few samples for an interval
    """
    ordered = np.sort(np.asarray(samples, float))
    low, high = order(len(ordered))
    return Median(float(np.median(ordered)), float(ordered[low]), float(ordered[high]))


@dataclass(frozen=True)
class Difference:
    """How the second of two sets of samples relates to the first."""

    ratio: Median
    """The median of the second divided by that of the first, with its 95 % interval."""
    p: float
    """Two-sided p-value of the Mann-Whitney test."""
    by_launches: bool
    """Whether the test compared the medians of launches (else all samples)."""


def difference(first: Sequence[Samples], second: Sequence[Samples]) -> Difference:
    """Compare two sets of samples, a sequence per launch.

    :raises ValueError: there are too few samples
    """
    from scipy.stats import mannwhitneyu

    flat = [np.concatenate(side) for side in (first, second)]
    if min(map(len, flat)) < LEAST:
        raise ValueError(f"{' and '.join(str(len(x)) for x in flat)} samples: a comparison needs {LEAST} on each side")
    by_launches = min(len(first), len(second)) >= LAUNCHES
    tested = [np.array([np.median(x) for x in side]) for side in (first, second)] if by_launches else flat
    p = float(mannwhitneyu(*tested, alternative="two-sided").pvalue)
    return Difference(ratio(first, second), p, by_launches)


def ratio(first: Sequence[Samples], second: Sequence[Samples]) -> Median:
    """Divide the median of the second set of samples by that of the first.

    The interval is a percentile bootstrap (Efron and Tibshirani 1993) that draws launches, and then samples of each;
    the same samples always give the same interval.
    """
    random = np.random.default_rng(1)
    drawn = [_medians(side, random) for side in (first, second)]
    low, high = np.quantile(drawn[1] / drawn[0], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    middle = float(np.median(np.concatenate(second)) / np.median(np.concatenate(first)))
    return Median(middle, float(low), float(high))


def _medians(launches: Sequence[Samples], random: np.random.Generator) -> Samples:
    """Medians of resampled sets: as many launches as there are, and of each as many samples as the mean launch has."""
    flat, lengths = np.concatenate(launches), np.array([len(x) for x in launches])
    offsets, each = np.cumsum(lengths) - lengths, round(float(np.mean(lengths)))
    medians = []
    for _ in range(RESAMPLES // STEP):
        chosen = random.integers(0, len(launches), (STEP, len(launches), 1))
        places = offsets[chosen] + (random.random((STEP, len(launches), each)) * lengths[chosen]).astype(int)
        medians.append(np.median(flat[places].reshape(STEP, -1), axis=1))
    return np.concatenate(medians)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests (Holm 1979): of many equal pairs some differ by chance."""
    corrected, worst = [0.0] * len(p_values), 0.0
    for place, i in enumerate(np.argsort(p_values)):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[i]))
        corrected[i] = worst
    return corrected
