# SPDX-License-Identifier: Apache-2.0
"""Intervals and tests against known values and against random samples whose truth is known."""

import math

import numpy as np
import pytest

from hpccoll.tools.bench import statistics


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
    with pytest.raises(ValueError, match="needs 6"):
        statistics.difference([np.ones(3)], [np.ones(30)])


def test_a_difference_is_seen_and_equal_samples_are_not_different() -> None:
    random = np.random.default_rng(5)
    first = [random.lognormal(0, 0.1, 50) for _ in range(6)]
    second = [random.lognormal(0, 0.1, 50) for _ in range(6)]
    slower = [1.1 * x for x in second]
    same, worse = statistics.difference(first, second), statistics.difference(first, slower)
    assert same.p > 0.05 and same.ratio.low < 1 < same.ratio.high and same.by_launches
    assert worse.p < 0.01 and worse.ratio.low < 1.1 < worse.ratio.high and worse.ratio.low > 1


def test_launches_that_differ_widen_the_interval() -> None:
    random = np.random.default_rng(6)
    steady = [random.normal(1, 0.01, 100) for _ in range(4)]
    jumpy = [random.normal(1 + shift, 0.01, 100) for shift in (0, 0.1, 0.2, 0.3)]
    narrow = statistics.difference(steady, steady).ratio
    wide = statistics.difference(steady, jumpy).ratio
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_many_tests_are_corrected() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
