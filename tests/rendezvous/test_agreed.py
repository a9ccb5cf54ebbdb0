# SPDX-License-Identifier: Apache-2.0
"""A step of the start that fails on some ranks is one error on all of them, which names the first of these once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hpccoll import StartError
from hpccoll.rendezvous import ThreadGroup, ThreadRendezvous
from hpccoll.rendezvous.protocol import agreed

RANKS = 3


def error_of(failures: dict[int, str]) -> str:
    """Let all ranks take the step; the ranks in `failures` fail with a text."""
    group = ThreadGroup(RANKS)

    def step(rank: int) -> Callable[[], int]:
        def action() -> int:
            if rank in failures:
                raise OSError(failures[rank])
            return rank

        return action

    def said(rank: int) -> str:
        with pytest.raises(StartError) as raised:
            agreed(ThreadRendezvous(group, rank).compare, step(rank))
        return str(raised.value)

    with ThreadPoolExecutor(RANKS) as pool:
        (text,) = set(pool.map(said, range(RANKS)))
    return text


def test_the_first_rank_that_fails_is_named() -> None:
    assert error_of({1: "no disk", 2: "no memory"}) == "rank 1: no disk"
    assert error_of(dict.fromkeys(range(RANKS), "no disk")) == "rank 0: no disk"


def test_a_rank_that_the_step_itself_has_found_is_named_once() -> None:
    """As where a net over UCX cannot be made on rank 1: it has exchanged that already."""
    assert error_of(dict.fromkeys(range(RANKS), "rank 1: no interface")) == "rank 1: no interface"
    assert error_of({2: "rank 1: no interface"}) == "rank 2: rank 1: no interface"
