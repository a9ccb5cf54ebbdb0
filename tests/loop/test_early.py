# SPDX-License-Identifier: Apache-2.0
"""What a rank asks for before another one has added the set is not lost."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.timeout(100)
@pytest.mark.parametrize("asks_for", ["preempt", "stop"])
def test_a_message_before_its_set(
    build_c: Callable[..., Path], run_c: Callable[..., str], library: list[str], asks_for: str
) -> None:
    assert run_c(build_c("tests/loop/early.c", *library), asks_for, timeout=60) == "fine\n"
