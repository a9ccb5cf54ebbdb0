# SPDX-License-Identifier: Apache-2.0
"""What the search finds on programs whose times are known."""

import random
from collections.abc import Callable

import pytest

from hpccoll.tuner.search import Knobs, Outcome, ratio_of, search

DEFAULTS = Knobs(16 << 20, 4 << 20, 0.002)


def run(
    seconds: Callable[[Knobs], float], noise: float = 0.0, seed: int = 0, defaults: Knobs = DEFAULTS
) -> tuple[Outcome, list[Knobs]]:
    """The search on a program that takes `seconds`, times e^(normal noise); and what it tried."""
    chance, tried = random.Random(seed), []
    asked, sample = search(defaults), None
    try:
        while True:
            wanted = asked.send(sample)
            if isinstance(wanted, Outcome):
                sample = None
                continue
            tried.append(wanted)
            sample = seconds(wanted) * chance.lognormvariate(0, noise)
    except StopIteration as end:
        return end.value, tried


def test_nothing_gains() -> None:
    outcome, tried = run(lambda _: 1.0, noise=0.01)
    assert outcome == Outcome(DEFAULTS, None)
    assert len(tried) <= 4 * 2 * 2 * 8


def test_follows_a_knob_as_long_as_it_gains() -> None:
    best = {"raise_window": 0.000125, "fusion_threshold": 256 << 20}

    def seconds(knobs: Knobs) -> float:
        window = 0.9 if knobs.raise_window <= 0.0005 else 1.0
        return window * (1.5 if knobs.fusion_threshold < best["fusion_threshold"] // 4 else 1.0)

    outcome, _ = run(seconds, noise=0.003)
    assert outcome.knobs == Knobs(64 << 20, 4 << 20, 0.0005)
    assert outcome.ratio is not None
    assert outcome.ratio.low < 0.6 < outcome.ratio.high * 1.02


def test_knobs_that_gain_together() -> None:
    """A larger batch needs more raised bytes and a higher threshold."""

    def seconds(knobs: Knobs) -> float:
        return 1e6 / min(knobs.raise_bytes, knobs.fusion_threshold, 128 << 20) + 0.01

    assert run(seconds)[0].knobs == Knobs(256 << 20, 256 << 20, 0.002)


def test_never_ends_worse() -> None:
    """Every other setting is 1 to 5 % worse, and samples scatter by 10 %: what is kept by chance is rare."""
    kept = 0
    for seed in range(200):
        costs, penalty = {DEFAULTS: 1.0}, random.Random(seed)

        def seconds(knobs: Knobs, costs: dict[Knobs, float] = costs, penalty: random.Random = penalty) -> float:
            return costs.setdefault(knobs, 1 + penalty.uniform(0.01, 0.05))

        kept += run(seconds, noise=0.1, seed=seed)[0].knobs != DEFAULTS
    assert kept <= 4


def test_defaults_beyond_the_bounds() -> None:
    """A knob that was set to next to nothing comes back to where it matters."""
    outcome, _ = run(lambda knobs: 2e6 / min(knobs.fusion_threshold + 1e5, 1 << 20), defaults=Knobs(1, 1 << 40, 0.0))
    assert outcome.knobs == Knobs(1 << 20, 1 << 40, 0.0)


def test_interval() -> None:
    """Student's interval of the ratios e^0.1, e^0.2, e^0.3: 0.2 +- 4.303 x 0.1 / sqrt(3)."""
    ratio = ratio_of([0.1, 0.2, 0.3])
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.2214, 0.9527, 1.5659), abs=1e-4)
