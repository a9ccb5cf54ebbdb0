# SPDX-License-Identifier: Apache-2.0
"""Intervals and tests against known values and against random samples whose truth is known."""

import math
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest

from hpccoll.tools.bench import statistics


def scipy_stats() -> ModuleType:
    """Import SciPy for the tests that need it: every worker collects this file, and the import takes 2 s."""
    return import_module("scipy.stats")


@pytest.mark.parametrize(
    ("n", "ranks"),
    [(6, (0, 5)), (10, (1, 8)), (20, (5, 14)), (30, (9, 20)), (70, (26, 43))],  # Le Boudec 2010, table A.1
)
def test_order_statistics_of_the_table(n: int, ranks: tuple[int, int]) -> None:
    assert statistics.order(n) == ranks


@pytest.mark.parametrize("n", [6, 7, 25, 100, 999, 1001, 5000])
def test_the_interval_has_its_confidence_and_no_narrower_one_has(n: int) -> None:
    def confidence(low: int, high: int) -> float:
        return sum(math.comb(n, k) for k in range(low + 1, high + 1)) / 2**n

    low, high = statistics.order(n)
    assert confidence(low, high) >= 0.95
    if n <= 1000:
        assert confidence(low + 1, high - 1) < 0.95


def test_the_interval_encloses_the_median_of_a_skewed_distribution() -> None:
    random, inside = np.random.default_rng(3), 0
    for _ in range(400):
        found = statistics.median(random.exponential(size=40))
        inside += found.low <= math.log(2) <= found.high
    assert inside >= 0.92 * 400


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="5 samples: an interval of 95% needs 6"):
        statistics.median([1.0] * 5)


@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_medians_of_resamples_are_those_of_drawn_samples(n: int) -> None:
    random = np.random.default_rng(2)
    samples = random.exponential(size=n)
    found = statistics._medians(samples, 10_000, random)
    drawn = np.median(random.choice(samples, (10_000, n)), axis=1)
    assert scipy_stats().ks_2samp(found, drawn).pvalue > 0.01


BETWEEN, WITHIN = 0.03, 0.02
"""Spread of the launches of one program, and of the samples of a launch."""


def launches(random: np.random.Generator, count: int, truth: float = 1.0, samples: int = 20) -> list[np.ndarray]:
    """Launches of a program whose median time is the truth."""
    return [truth * random.lognormal(random.normal(0, BETWEEN), WITHIN, samples) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 10])
def test_intervals_of_simulated_studies_enclose_the_truth(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of time and of efficiency do, in 300 studies; those that take all samples as independent do not."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    random, inside, studies = np.random.default_rng(4), np.zeros(3), 300
    for _ in range(studies):
        base, more = launches(random, count), launches(random, count, 1.25)
        both = [statistics.resampled(one, stream) for stream, one in enumerate((base, more))]
        found = (
            (statistics.estimate(both[1]), 1.25),
            (statistics.estimate(both[1], both[0], inverse=True), 0.8),
            (statistics.median(np.concatenate(more)), 1.25),
        )
        inside += [one.low <= truth <= one.high for one, truth in found]
    time, efficiency, independent = inside / studies
    assert 0.9 <= time <= 0.99 and 0.9 <= efficiency <= 0.99
    assert independent < 0.6


def test_time_speedup_and_efficiency_do_not_contradict_each_other() -> None:
    """They are one quotient, in other units, of one set of replicates."""
    random = np.random.default_rng(5)
    base, more = (statistics.resampled(launches(random, 6), stream) for stream in (0, 1))
    ratio, speedup = statistics.estimate(more, base), statistics.estimate(more, base, 4.0, inverse=True)
    for one, other in zip((speedup.middle, *speedup.points), (ratio.middle, *ratio.points), strict=True):
        assert one == pytest.approx(4 / other)
    assert (speedup.low, speedup.high) == pytest.approx((4 / ratio.high, 4 / ratio.low), rel=1e-3)
    itself = statistics.estimate(base, base)
    assert (itself.low, itself.middle, itself.high) == (1, 1, 1)


def test_fewer_than_five_launches_have_a_range() -> None:
    few = [np.full(30, value) for value in (1.0, 1.5, 1.25)]
    one, base = statistics.resampled(few), statistics.resampled([np.full(30, 2.0)])
    assert statistics.estimate(one) == statistics.Median(1.25, 1.0, 1.5, True, (1.0, 1.5, 1.25))
    speedup = statistics.estimate(one, base, inverse=True)
    assert speedup == statistics.Median(1.6, 2 / 1.5, 2.0, True, (2.0, 2 / 1.5, 1.6))
    assert statistics.estimate(statistics.resampled([*few, *few[:2]])).ranged is False
    assert statistics.estimate(statistics.resampled(few * 2), base).ranged


def test_a_long_launch_counts_as_one() -> None:
    found = statistics.estimate(statistics.resampled([np.full(1000, 9.0), *(np.full(3, 1.0) for _ in range(8))]))
    assert (found.low, found.middle, found.high) == (1, 1, 1) and found.points[0] == 9


@pytest.mark.slow
def test_a_difference_is_seen_and_launches_of_one_program_are_not_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    random, wrong, seen, studies = np.random.default_rng(6), 0, 0, 300
    for study in range(studies):
        first, second = launches(random, 6), launches(random, 6)
        wrong += differs(first, second)
        if study < 50:
            seen += differs(first, [1.15 * one for one in second])
    assert wrong <= 0.08 * studies and seen >= 45


def differs(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    found = statistics.difference(first, second)
    assert found.launches == (6, 6) and not math.isnan(found.p)
    return found.p < statistics.SIGNIFICANT and not found.ratio.low <= 1 <= found.ratio.high


def test_few_launches_have_no_test() -> None:
    random = np.random.default_rng(7)
    found = statistics.difference(launches(random, 6, samples=1000), launches(random, 5, 2.0, samples=1000))
    assert math.isnan(found.p) and found.launches == (6, 5)


def test_the_launches_that_a_verdict_needs() -> None:
    """The Mann-Whitney test of two sides without overlap, by SciPy, times the number of cases."""
    for tests, n in ((1, 6), (23, 6), (24, 7), (100, 8)):
        assert statistics.needed(tests) == n
        assert tests * scipy_stats().mannwhitneyu(range(n), range(n, 2 * n)).pvalue < 0.05
        assert n == 6 or tests * scipy_stats().mannwhitneyu(range(n - 1), range(n, 2 * n - 1)).pvalue > 0.05


def test_many_tests_are_corrected() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
