# SPDX-License-Identifier: Apache-2.0
"""The shape of the control tree (ext/core/tree_place.c), and the messages of one agreement that wait for one another.

The leaders of the nodes form a heap of the fan-out, the other ranks of a node one below their leader. An item rises
from the deepest rank to the root, and the entry goes the same way down.
"""

from dataclasses import dataclass

FANOUT = 16
FURTHER = 0.2
"""The share of a message inside a node that each further one costs which its receiver gets together with it."""


@dataclass(frozen=True)
class Path:
    """The messages of one agreement that wait for one another on the way up; the way down is as long."""

    inside: float
    """Messages inside a node; a message that its receiver gets together with others counts as FURTHER."""
    between: int
    """Levels of messages between nodes. The messages of a level are under way together."""
    further: int
    """Messages between nodes that a receiver gets together with the first one of their level."""


def _levels(members: int, fanout: int) -> tuple[int, int]:
    """Return the levels of a heap with this number of members, and the further messages, level by level."""
    levels, further, last = 0, 0, members - 1
    while last > 0:
        parent = (last - 1) // fanout
        children = min(fanout, members - 1 - fanout * parent) if parent == 0 else fanout
        levels, further, last = levels + 1, further + children - 1, parent
    return levels, further


def path(nodes: int, per_node: int, fanout: int = FANOUT) -> Path:
    """Return the longest way up the tree."""
    levels, further = _levels(per_node, fanout)
    return Path(levels + FURTHER * further, *_levels(nodes, fanout))


def messages(nodes: int, per_node: int) -> int:
    """Control messages of one agreement, all ranks together."""
    return 2 * (nodes * per_node - 1)
