# SPDX-License-Identifier: Apache-2.0
"""The shape of the control tree (ext/core/tree_place.c), and the latencies of one agreement.

The leaders of the nodes form a heap of the fan-out, the other ranks of a node one below their leader. An item rises
from the deepest rank to the root, and the entry goes the same way down.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpccoll.tools.model.messages import FURTHER

FANOUT = 16


@dataclass(frozen=True)
class Path:
    """The latencies of one agreement on the way up; the way down is as long."""

    inside: float
    """Messages inside a node; a message that its receiver gets together with others counts as FURTHER."""
    between: float
    """Messages between nodes."""


def _latencies(members: int, fanout: int) -> float:
    """Return the latencies of a heap with this number of members, level by level."""
    found, last = 0.0, members - 1
    while last > 0:
        parent = (last - 1) // fanout
        children = min(fanout, members - 1 - fanout * parent) if parent == 0 else fanout
        found += 1 + FURTHER * (children - 1)
        last = parent
    return found


def path(nodes: int, per_node: int, fanout: int = FANOUT) -> Path:
    """Return the longest way up the tree."""
    return Path(_latencies(per_node, fanout), _latencies(nodes, fanout))


def messages(nodes: int, per_node: int) -> int:
    """Control messages of one agreement, all ranks together."""
    return 2 * (nodes * per_node - 1)
