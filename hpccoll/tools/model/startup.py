# SPDX-License-Identifier: Apache-2.0
"""The cost of `init()` for a rank: the exchanges of the start (hpccoll/bootstrap.py) and their bytes.

In an exchange the ranks first reduce 32 bytes. If their values differ (their machines and hosts, their processors),
each rank also sends a digest, and the first rank of each different value sends the value. Process ids are sent as
numbers. `hpccoll bench startup` measures one rank of so many, and a test compares what it received.
"""

import math
from dataclasses import dataclass

REDUCED, PER_RANK = 32, 2 * 16 + 8
"""Bytes of a reduction; bytes that each rank sends: two digests with their lengths, and its process number."""
EXCHANGES, WITH_NET = 13, 14
"""Reductions of a start on one node; between nodes, where one more compares what ranks lack for the net."""
GATHERS = 5
"""Two exchanges bring digests and values, one brings the process numbers."""
VALUE_PER_NODE, VALUES = 112, 434
"""Bytes about a node (host, machine; no address in the network), for names of 10 characters; bytes about the job:
settings, processors."""


@dataclass(frozen=True)
class Start:
    """The rounds and the received bytes of one `init()`."""

    inside: float
    """Messages in a node that wait for one another."""
    between: float
    """Messages between nodes that wait for one another."""
    received: int
    """Bytes that a rank receives."""


def start(nodes: int, per_node: int) -> Start:
    """Count the start of a job over MPI, whose collectives are assumed to take log2(p) rounds."""
    calls = (WITH_NET if nodes > 1 else EXCHANGES) + GATHERS
    received = (calls - GATHERS) * REDUCED + PER_RANK * nodes * per_node + VALUE_PER_NODE * nodes + VALUES
    return Start(calls * _rounds(per_node), calls * _rounds(nodes), received)


def _rounds(members: int) -> int:
    return math.ceil(math.log2(members))
