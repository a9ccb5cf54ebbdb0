# SPDX-License-Identifier: Apache-2.0
"""The control plane's counts (docs: control plane): messages, hops, and nothing that grows with the ranks."""

from collections.abc import Callable, Iterator

import pytest
from programs import Build, steady

from hpccoll import _fleet
from hpccoll.errors import InvalidArgumentError

FANOUT = 4
ARRIVALS = ("in order", "in order", "in order", "differing", "differing", "one late", "one late")
"""The first is the first announcement."""


def steps(nodes: int) -> Iterator[tuple[str, dict[str, float]]]:
    fleet = _fleet.Fleet(nodes, 6, FANOUT, [(name, [shape]) for name, shape in _fleet.resnet50()])
    return ((arrival, fleet.step(arrival)) for arrival in ARRIVALS)


def depth(nodes: int) -> int:
    """Levels of the tree of leaders, whose root has FANOUT children, and one or two below in a node of 6."""
    levels, reached, width = 0, 1, 1
    while reached < nodes:
        width *= FANOUT
        reached += width
        levels += 1
    return levels + 2


@pytest.mark.parametrize("nodes", [1, 5, 64])
def test_counts(nodes: int) -> None:
    edges = 6 * nodes - 1
    for arrival, row in steps(nodes):
        if arrival == "differing":  # each entry once down every edge; up at most once a raise of the ranks below
            up = row["messages"] - row["entries"] * edges
            assert edges <= up <= 4 * edges * depth(nodes), row
        else:  # one up and one down an edge, whatever the skew, first met or cached
            assert row["messages"] == 2 * edges, row
            assert row["chain"] <= 2 * depth(nodes), row


def test_no_rank_pays_for_the_others() -> None:
    """The busiest rank sends as many messages and bytes and holds as much memory among 1,536 as among 126 ranks."""
    small, large = ([row for _, row in steps(nodes)] for nodes in (21, 256))
    for a, b in zip(small, large, strict=True):
        assert b["messages_max"] <= a["messages_max"], (a, b)
        assert b["bytes_max"] <= 1.05 * a["bytes_max"], (a, b)
        assert b["memory_max"] <= 1.05 * a["memory_max"], (a, b)


def test_a_group_is_one_request() -> None:
    """Its tensors are announced and acknowledged as one, so that a step costs less of everything but messages."""
    several = _fleet.resnet50()
    assert len(several) == 161 and several[0] == ("conv1.weight", (64, 3, 7, 7))
    single, grouped = (
        _fleet.Fleet(16, 6, FANOUT, requests)
        for requests in ([(name, [shape]) for name, shape in several], [("all", [shape for _, shape in several])])
    )
    for _ in range(2):
        one, all_of_them = single.step("in order"), grouped.step("in order")
        assert all_of_them["messages"] == one["messages"] and all_of_them["bytes"] < one["bytes"]
        assert all_of_them["memory_max"] < one["memory_max"]


def test_a_fleet_needs_ranks_and_requests() -> None:
    for nodes, requests in ((0, [("a", [(1,)])]), (1, [])):
        with pytest.raises(InvalidArgumentError, match="nodes, 6 ranks on each"):
            _fleet.Fleet(nodes, 6, FANOUT, requests)


@pytest.mark.slow
def test_memory_is_bounded(build_c: Build, run_c: Callable[..., str]) -> None:
    """By what is pending and cached: names that never come again are forgotten."""
    print(run_c(steady(build_c)))
