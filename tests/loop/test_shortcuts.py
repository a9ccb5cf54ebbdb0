# SPDX-License-Identifier: Apache-2.0
"""Shortcuts in C; with --sanitize=thread (or address) the test of their memory orders."""

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_take_it_or_agree(build_c, run_c, library, ranks, background):
    program = build_c("tests/loop/shortcuts.c", *library)
    assert run_c(program, ranks, 300, background, timeout=200) == "fine\n"
