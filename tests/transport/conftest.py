# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of transports: sources and places of control edges, and the environments of other MPIs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "install"))

EDGES = (
    "ext/transport/shm/segment.c",
    "ext/transport/shm/control_segment.c",
    "ext/transport/shm/cores.c",
    "ext/transport/shm/cells.c",
    "ext/transport/shm/byte_ring.c",
    "ext/transport/control/control.c",
    "ext/transport/net/local.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
)
PLACES = [  # mode, ranks, ranks per node
    ("threads", 2, 2),
    ("threads", 4, 4),
    ("threads", 4, 2),
    ("threads", 4, 3),
    ("threads", 3, 1),
    ("processes", 2, 2),
    ("processes", 4, 4),
    ("processes", 9, 9),
]


@pytest.fixture(scope="session")
def edges() -> tuple[str, ...]:
    """The sources of control edges, through rings inside a node and over a net between nodes."""
    return EDGES


@pytest.fixture(params=PLACES, ids=lambda place: "-".join(map(str, place)))
def place(request: pytest.FixtureRequest) -> tuple[str, int, int]:
    """Threads or processes as ranks, their number, and the ranks per node."""
    found: tuple[str, int, int] = request.param
    return found
