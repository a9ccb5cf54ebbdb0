# SPDX-License-Identifier: Apache-2.0
"""The contract of `hc_control`: messages of all sizes between all pairs, over rings and over a net."""

from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = (
    "tests/transport/control_contract.c",
    "ext/transport/shm/segment.c",
    "ext/transport/shm/control_segment.c",
    "ext/transport/shm/cells.c",
    "ext/transport/shm/byte_ring.c",
    "ext/transport/control/control.c",
    "ext/transport/net/local.c",
    "ext/core/status.c",
)
PLACES = [  # mode, ranks, ranks per node
    ("threads", 2, 2),
    ("threads", 4, 4),
    ("threads", 4, 2),
    ("threads", 5, 2),
    ("threads", 3, 1),
    ("processes", 2, 2),
    ("processes", 4, 4),
    ("processes", 9, 9),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mode", "size", "node_size"), PLACES)
def test_whole_in_order_none_lost(
    build_c: Callable[..., Path], run_c: Callable[..., str], mode: str, size: int, node_size: int
) -> None:
    program = build_c(*SOURCES)
    for seed in range(2):
        run_c(program, mode, size, node_size, seed, 1000)
