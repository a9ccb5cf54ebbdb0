# SPDX-License-Identifier: Apache-2.0
"""The loop in C, with several threads a rank; with --sanitize=thread (or address) the test of its memory orders."""

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


@pytest.mark.timeout(600)
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize(
    ("ranks", "nodes", "threads"), [(1, 1, 3), (2, 1, 1), (2, 2, 2), (4, 2, 2), (3, 2, 3)]
)
def test_threads_submit_wait_and_poll(build_c, run_c, ranks, nodes, threads, background):
    program = build_c("tests/loop/threads.c", *LIBRARY)
    assert run_c(program, ranks, nodes, threads, 30, background, timeout=200) == "fine\n"
