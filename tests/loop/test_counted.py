# SPDX-License-Identifier: Apache-2.0
"""Requests that ranks count in C, beside named ones; with --sanitize=thread the test of their memory orders."""

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ranks", "nodes", "background"), [(2, 1, 0), (2, 1, 1), (3, 1, 1), (2, 2, 1), (4, 2, 1)])
def test_batches_have_one_order(build_c, run_c, library, ranks, nodes, background):
    program = build_c("tests/loop/counted.c", *library)
    assert run_c(program, ranks, nodes, 300, background, timeout=200) == "fine\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["ends", "breaks", "differs"])
def test_results_of_equal_rows_have_one_owner(build_c, run_c, library, how):
    """Under --sanitize=address the memory is freed once."""
    assert run_c(build_c("tests/loop/equal_rows.c", *library), how, timeout=50) == "fine\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["lost", "stalls"])
def test_a_request_that_is_left_alone_says_why(build_c, run_c, library, how):
    """It once ended with "an earlier failure", or waited without a report and a limit."""
    said = run_c(build_c("tests/loop/count_fails.c", *library), how, timeout=50)
    assert said.endswith("fine\n")
    if how == "stalls":
        assert "hpccoll: rank 0: allreduce without a name was called by all ranks, but its data has waited 0.1" in said
