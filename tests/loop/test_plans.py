# SPDX-License-Identifier: Apache-2.0
"""Plans in C, by the caller and by the driver; with --sanitize=thread (or address) the test of their memory orders."""

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 1), (4, 1), (2, 2), (3, 2)])
def test_plans_in_any_order(build_c, run_c, library, ranks, nodes, background):
    program = build_c("tests/loop/plans.c", *library)
    assert run_c(program, ranks, nodes, 60, background, timeout=200) == "fine\n"
