# SPDX-License-Identifier: Apache-2.0
"""A set is removed while a message moves in a staging buffer of its data plane: the driver may sleep meanwhile."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.timeout(100)
@pytest.mark.parametrize("how", ["ends", "breaks"])
def test_a_set_waits_for_its_last_message(
    build_c: Callable[..., Path], run_c: Callable[..., str], library: list[str], how: str
) -> None:
    assert run_c(build_c("tests/loop/removal.c", *library), how, timeout=60) == "fine\n"
