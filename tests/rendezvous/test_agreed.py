# SPDX-License-Identifier: Apache-2.0
"""A step of the start that fails on some ranks is one error on all of them, which names the first of these once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hpccoll import HpccollError, InvalidArgumentError, StartError, World
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


def test_a_wrong_knob_of_one_rank_is_an_error_on_all() -> None:
    """As a site file that one host lacks; the others do not wait for that rank."""
    group = ThreadGroup(RANKS)

    def error_of_rank(rank: int) -> tuple[type[HpccollError], str]:
        with pytest.raises(HpccollError) as raised:
            World(rendezvous=ThreadRendezvous(group, rank), site_file="/there/is/none" if rank == 1 else "")
        return raised.type, str(raised.value)

    with ThreadPoolExecutor(RANKS) as pool:
        first, wrong, last = pool.map(error_of_rank, range(RANKS))
    assert wrong[0] is InvalidArgumentError and "HPCCOLL_SITE_FILE=/there/is/none cannot be used" in wrong[1]
    assert first == last == (StartError, f"rank 1: {wrong[1]}")
