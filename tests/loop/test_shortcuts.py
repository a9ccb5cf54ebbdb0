# SPDX-License-Identifier: Apache-2.0
"""Shortcuts in C; with --sanitize=thread (or address) the test of their memory orders."""

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_take_it_or_agree(build_c, run_c, library, ranks, background):
    program = build_c("tests/loop/shortcuts.c", *library)
    assert run_c(program, ranks, 300, background, 1, timeout=200) == "fine\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 2), (3, 2), (4, 4), (11, 11), (12, 9)])
def test_nodes_vote_or_agree(build_c, run_c, library, ranks, nodes, background):
    program = build_c("tests/loop/shortcuts.c", *library)
    assert run_c(program, ranks, 300, background, nodes, timeout=200) == "fine\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ranks", "nodes"), [(3, 1), (5, 1), (8, 1), (7, 2), (12, 3)])
def test_ranks_of_a_large_node_count_in_groups(build_c, run_c, library, ranks, nodes):
    """Two groups per node here; of more than 32 ranks otherwise."""
    sources = [f"{file} -DHC__SHORTCUT_GROUPS=2" if file.endswith("shm/layout.c") else file for file in library]
    program = build_c("tests/loop/shortcuts.c", *sources)
    assert run_c(program, ranks, 300, 1, nodes, timeout=200) == "fine\n"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_votes_add_up_as_requests(build_c, run_c, library, seed):
    assert run_c(build_c("tests/loop/tally.c", *library), seed, 1000) == "1000 cases\n"


@pytest.mark.timeout(300)
def test_votes_gather_what_each_rank_gives(build_c, run_c, library):
    assert run_c(build_c("tests/loop/gathered.c", *library), 1, 3000) == "3000 cases\n"
