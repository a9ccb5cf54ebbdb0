# SPDX-License-Identifier: Apache-2.0
"""A set's data planes, one for each kind of memory: made when they are needed, run in the order of the log."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.timeout(100)
@pytest.mark.parametrize("how", ["host", "both", "fails"])
def test_planes_by_memory(
    build_c: Callable[..., Path], run_c: Callable[..., str], library: list[str], how: str
) -> None:
    assert run_c(build_c("tests/loop/planes.c", *library), how, timeout=60) == "fine\n"
