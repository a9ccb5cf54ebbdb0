# SPDX-License-Identifier: Apache-2.0
"""How ranks wait for each other: which way by the cores that they may use, and never at the cost of a core."""

import os
import re
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import hpccoll
from hpccoll import testing
from hpccoll.rendezvous import ThreadGroup, ThreadRendezvous

CORES = sorted(os.sched_getaffinity(0))
LATE = 0.4


def said(masks: list[set[int]], **knobs: object) -> str:
    """What rank 0 says about waiting; each rank is a thread that is bound before its World is made."""
    group, found = ThreadGroup(len(masks)), [""] * len(masks)

    def rank_of(rank: int) -> None:
        os.sched_setaffinity(0, masks[rank])
        with hpccoll.World(rendezvous=ThreadRendezvous(group, rank), verbose=0, **knobs) as world:
            found[rank] = world.base.loop.waiting()

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(len(masks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    return found[0]


def test_ranks_on_one_core_yield() -> None:
    assert said([{CORES[0]}] * 2) == "yield (2 ranks share 1 core)"


@pytest.mark.skipif(len(CORES) < 2, reason="one core")
def test_ranks_with_a_core_each_spin() -> None:
    bound, unbound = [{CORES[0]}, {CORES[1]}], [set(CORES[:2])] * 2
    assert said(bound) == said(unbound) == "spin (2 ranks on 2 cores)"
    assert said([*unbound, {CORES[1]}]) == "yield (3 ranks share 2 cores)"


@pytest.mark.skipif(len(CORES) < 2, reason="one core")
def test_ranks_of_emulated_nodes_share_one_machine() -> None:
    assert said([set(CORES[:2])] * 4, nodes="2") == "yield (4 ranks share 2 cores)"


@pytest.mark.parametrize("wait", ["spin", "yield", "sleep"])
def test_the_knob_goes_first(wait: str) -> None:
    assert said([{CORES[0]}] * 2, wait=wait) == f"{wait} (HPCCOLL_WAIT)"


def test_other_ways_are_refused() -> None:
    with pytest.raises(hpccoll.InvalidArgumentError, match=re.escape("auto, spin, yield, sleep")):
        hpccoll.config.read(wait="poll")


def calls_of(world: hpccoll.World) -> dict[str, Callable[[], object]]:
    """Calls in which rank 0 waits for rank 1, by the way that they take through the library."""
    plan = world.allreduce_init(np.ones(4))

    def start_plan() -> None:
        plan.start()
        plan.wait()

    def message() -> None:
        if world.rank:
            world.send(np.ones(4), 0)
        else:
            world.recv(np.ones(4), 1)

    return {
        "barrier": lambda: world.barrier(),
        "allreduce": lambda: world.allreduce(np.ones(4)),
        "large": lambda: world.allreduce(np.ones(9000)),
        "named": lambda: world.allreduce(np.ones(4), name="x"),
        "recv": message,
        "plan": start_plan,
    }


@pytest.mark.parametrize("wait", ["spin", "yield", "sleep"])
@pytest.mark.parametrize("call", ["barrier", "allreduce", "large", "named", "recv", "plan"])
def test_a_rank_that_waits_long_sleeps(wait: str, call: str) -> None:
    """Rank 1 comes late: the time of a core that rank 0 has used until then is that of a few looks."""

    def program(world: hpccoll.World) -> float:
        calls = calls_of(world)
        calls[call]()
        world.barrier()
        if world.rank:
            time.sleep(LATE)
        began, used = time.monotonic(), time.thread_time()
        calls[call]()
        used = time.thread_time() - used
        if world.rank == 0:
            assert time.monotonic() - began > LATE / 2
        return used

    used = testing.make_and_run(2, program, wait=wait)[0]
    assert used < LATE / 20, f"{used * 1e3:.1f} ms"
