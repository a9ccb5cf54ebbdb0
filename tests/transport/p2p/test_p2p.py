# SPDX-License-Identifier: Apache-2.0
"""The contract of point-to-point messages: all sizes between all pairs, through cells and over a net."""

from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = (
    "tests/transport/p2p/p2p_contract.c",
    "ext/transport/p2p/*.c",
    "ext/transport/net/bundle.c",
    "ext/transport/kernels/*.c",
)


@pytest.mark.timeout(120)
def test_each_meets_its_receive(
    build_c: Callable[..., Path], run_c: Callable[..., str], edges: tuple[str, ...], place: tuple[str, int, int]
) -> None:
    program = build_c(*SOURCES, *edges)
    for seed in range(3):
        run_c(program, *place, seed, 150)


@pytest.mark.timeout(120)
def test_a_rank_alone_sends_to_itself(
    build_c: Callable[..., Path], run_c: Callable[..., str], edges: tuple[str, ...]
) -> None:
    run_c(build_c(*SOURCES, *edges), "threads", 1, 1, 0, 150)
