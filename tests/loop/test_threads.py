# SPDX-License-Identifier: Apache-2.0
"""The loop in C, with several threads per rank; with --sanitize=thread (or address) the test of its memory orders."""

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize(("ranks", "nodes", "threads"), [(1, 1, 3), (2, 1, 1), (2, 2, 2), (4, 2, 2), (3, 2, 3)])
def test_threads_submit_wait_and_poll(build_c, run_c, library, ranks, nodes, threads, background):
    program = build_c("tests/loop/threads.c", *library)
    assert run_c(program, ranks, nodes, threads, 30, background, timeout=200) == "fine\n"
