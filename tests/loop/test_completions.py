# SPDX-License-Identifier: Apache-2.0
"""Functions that are called when a handle is done; with --sanitize=thread (or address) the test of their memory orders.

`ns` is for how long whoever begins a request drives by itself: never, as the gate does, and until it is done.
"""

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("ranks", "nodes", "threads", "rounds", "ns"),
    [(2, 1, 1, 20, 0), (2, 1, 1, 20, 100_000), (2, 2, 2, 10, 100_000), (3, 2, 3, 20, 0), (3, 2, 2, 5, 10_000_000)],
)
def test_functions_are_called_once_and_begin_the_next_request(
    build_c, run_c, library, ranks, nodes, threads, rounds, ns
):
    program = build_c("tests/loop/completions.c", *library)
    assert run_c(program, ranks, nodes, threads, rounds, ns, timeout=200) == "fine\n"
