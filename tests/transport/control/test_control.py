# SPDX-License-Identifier: Apache-2.0
"""The contract of `hc_control`: messages of all sizes between all pairs, over rings and over a net."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
def test_whole_in_order_none_lost(
    build_c: Callable[..., Path], run_c: Callable[..., str], edges: tuple[str, ...], place: tuple[str, int, int]
) -> None:
    program = build_c("tests/transport/control/control_contract.c", *edges)
    for seed in range(2):
        run_c(program, *place, seed, 1000)
