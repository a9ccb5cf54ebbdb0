# SPDX-License-Identifier: Apache-2.0
"""Which calls may try the shortcut, in sets of any number of ranks."""

import pytest


@pytest.mark.parametrize(
    ("nbytes", "ranks", "votes", "may"),
    [
        (8, 4, 1, 1),
        (1024, 4, 1, 1),
        (1025, 4, 1, 0),  # more than a vote holds
        (8, 27_648, 1, 1),  # as many ranks as Summit has GPUs: the limit once shrank with the ranks
        (1024, 27_648, 1, 1),
        (256 << 10, 2, 0, 1),
        (8, 32, 0, 1),
        (4096, 32, 0, 1),
        (4097, 32, 0, 0),  # 128 KiB of all ranks
    ],
)
def test_an_allreduce(build_c, run_c, sources_of, nbytes, ranks, votes, may):
    library = sources_of("core", "transport", "rendezvous/exchange.c", "loop", "world")
    program = build_c("tests/world/shortened.c", *library)
    assert run_c(program, nbytes, ranks, votes) == f"{may}\n"
