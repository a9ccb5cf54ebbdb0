# SPDX-License-Identifier: Apache-2.0
"""The control plane's counts (docs: control plane): messages, hops, and nothing that grows with the ranks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import Build, control_plane, steady

FANOUT = 4


@pytest.fixture(scope="module")
def fleet(build_c: Build) -> Path:
    return control_plane(build_c)


def steps(run_c: Callable[..., str], fleet: Path, nodes: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_c(fleet, nodes, 6, FANOUT, 2).splitlines()]


def depth(nodes: int) -> int:
    """Levels of the tree of leaders, whose root has FANOUT children, and one or two below in a node of 6."""
    levels, reached, width = 0, 1, 1
    while reached < nodes:
        width *= FANOUT
        reached += width
        levels += 1
    return levels + 2


@pytest.mark.parametrize("nodes", [1, 5, 64])
def test_counts(run_c: Callable[..., str], fleet: Path, nodes: int) -> None:
    edges = 6 * nodes - 1
    for row in steps(run_c, fleet, nodes):
        arrival = row["arrival"]
        if arrival == "differing":  # each entry once down every edge; up at most once a raise of the ranks below
            up = row["messages"] - row["entries"] * edges
            assert edges <= up <= 4 * edges * depth(nodes), row
        else:  # one up and one down an edge, whatever the skew, first met or cached
            assert row["messages"] == 2 * edges, row
            assert row["chain"] <= 2 * depth(nodes), row


def test_no_rank_pays_for_the_others(run_c: Callable[..., str], fleet: Path) -> None:
    """The busiest rank sends as many messages and bytes and holds as much memory among 1,536 as among 126 ranks."""
    small, large = (steps(run_c, fleet, nodes) for nodes in (21, 256))
    for a, b in zip(small, large, strict=True):
        assert b["messages_max"] <= a["messages_max"], (a, b)
        assert b["bytes_max"] <= 1.05 * a["bytes_max"], (a, b)
        assert b["memory_max"] <= 1.05 * a["memory_max"], (a, b)


def test_memory_is_bounded(build_c: Build, run_c: Callable[..., str]) -> None:
    """By what is pending and cached: names that never come again are forgotten."""
    print(run_c(steady(build_c)))
