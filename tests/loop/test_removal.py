# SPDX-License-Identifier: Apache-2.0
"""A set is removed while a letter moves in memory that its data plane lent: the driver may sleep meanwhile."""

from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = sorted(
    f
    for room in ("core", "transport", "loop")
    for f in glob(f"ext/{room}/*.c", root_dir=ROOT)
    if not f.endswith("/mpi.c")
)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("how", ["ends", "breaks"])
def test_a_set_waits_for_its_last_letter(
    build_c: Callable[..., Path], run_c: Callable[..., str], how: str
) -> None:
    assert run_c(build_c("tests/loop/removal.c", *LIBRARY), how, timeout=60) == "fine\n"
