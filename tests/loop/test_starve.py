# SPDX-License-Identifier: Apache-2.0
"""Memory runs out at every allocation of loop, transports and engine in turn: no crash, no hang, every handle ends."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def starve(build_c: Callable[..., Path], starving: tuple[str, ...], library: list[str]) -> Path:
    return build_c("tests/loop/starve.c", *library, flags=starving)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 19])
@pytest.mark.parametrize("goes_on", ["once", "on", "reserve"])
@pytest.mark.parametrize(("ranks", "nodes"), [pytest.param(3, 1, marks=pytest.mark.slow), (3, 2)])
def test_every_handle_ends(
    starve: Path, run_c: Callable[..., str], ranks: int, nodes: int, goes_on: str, stride: int
) -> None:
    """`once`: one allocation fails; `on`: it and all that follow; `reserve`: as `on`, and all end well."""
    assert "allocations failed" in run_c(starve, ranks, nodes, goes_on, stride, timeout=280)
