# SPDX-License-Identifier: Apache-2.0
"""The prediction is the formula that it states, and the sentence says what the formula says."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.tools.doctor.training import (
    MODELS,
    Network,
    Training,
    efficiency,
    needed_bandwidth,
    remedies,
    sentence,
)

GIGABIT = Network(1.25e8, 1e-5, math.inf)


def test_worked_example() -> None:
    """100 MB over 4 nodes of 1 Gbit/s: 1.2 s on the wire and 6 batches of 4 messages, behind 50 ms of computation."""
    needed = Training("x", 1e8, 0.1, 4, 0.5)
    wire = 2 * 3 / 4 * 1e8 / 1.25e8 + 2 * 2 * 1e-5 * 6
    assert efficiency(needed, GIGABIT) == pytest.approx(0.1 / (0.1 + wire - 0.05))
    assert sentence(needed, GIGABIT).startswith("The network will not do: x on 4 nodes (100 MB and 100 ms")
    assert "8% efficiency" in sentence(needed, GIGABIT)


def test_a_fast_network_will_do() -> None:
    needed = Training("x", 1e8, 0.1, 4, 0.5)
    assert sentence(needed, Network(1.25e10, 2e-6, math.inf)).startswith("The network will do: x on 4 nodes")


def test_one_rank_a_node_has_no_stage_inside() -> None:
    assert efficiency(Training("x", 1e8, 0.1, 1, 0.0), GIGABIT) == 1.0


def test_the_slower_stage_counts() -> None:
    needed = Training("x", 1e8, 0.1, 4, 0.0)
    slow_inside = Network(1.25e10, 0.0, 1e8)
    assert efficiency(needed, slow_inside) == pytest.approx(0.1 / 1.1)
    assert "the reduction inside the node is the slower part" in sentence(needed, slow_inside)


trainings = st.builds(
    Training, st.just("x"), st.floats(1e5, 1e10), st.floats(1e-3, 10), st.integers(2, 5000), st.floats(0, 1)
)
networks = st.builds(Network, st.floats(1e6, 1e11), st.floats(1e-7, 1e-4), st.floats(1e8, 1e12) | st.just(math.inf))


@settings(max_examples=50, deadline=None)
@given(trainings, networks)
def test_no_remedy_makes_it_worse(needed: Training, network: Network) -> None:
    before = efficiency(needed, network)
    assert 0 < before <= 1
    assert all(value >= before * (1 - 1e-9) for value in remedies(needed, network).values())


@settings(max_examples=50, deadline=None)
@given(trainings, networks)
def test_the_needed_bandwidth_is_enough(needed: Training, network: Network) -> None:
    wanted = needed_bandwidth(needed, network)
    if math.isfinite(wanted):
        assert efficiency(needed, Network(wanted, network.latency, math.inf)) >= 0.9 - 1e-6


def test_models_have_sources() -> None:
    assert MODELS["resnet-50"].parameters == 25_557_032
    assert all(model.source for model in MODELS.values())
