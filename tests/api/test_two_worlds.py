# SPDX-License-Identifier: Apache-2.0
"""Two Worlds of the same ranks, without a background thread, whose calls the ranks wait for in different orders."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import hpccoll

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.timeout(60)]


@pytest.fixture(params=["", "1"], ids=["nodes of the job", "one node"])
def worlds(request: pytest.FixtureRequest) -> Iterator[tuple[hpccoll.World, hpccoll.World]]:
    knobs = {"background": False, "verbose": 0, "stall_limit": 30} | ({"nodes": request.param} if request.param else {})
    with ExitStack() as stack:
        yield tuple(stack.enter_context(hpccoll.World(**knobs)) for _ in range(2))


def crosswise(world: hpccoll.World, one: Callable[[], object], other: Callable[[], object]) -> None:
    """Rank 0 waits for the call of the other World first, the others last."""
    for wait in (other, one) if world.rank == 0 else (one, other):
        wait()


def test_a_request_goes_on_while_its_rank_waits_in_another_world(worlds: tuple[hpccoll.World, hpccoll.World]) -> None:
    a, b = worlds
    for count in (3, 200_000):
        handle = a.allreduce_async(np.full(count, a.rank + 1.0), name="sum")
        crosswise(a, handle.wait, b.barrier)
        assert (handle.wait() == a.size * (a.size + 1) / 2).all()


def test_a_plan_goes_on_while_its_rank_waits_in_another_world(worlds: tuple[hpccoll.World, hpccoll.World]) -> None:
    a, b = worlds
    x = np.full(200_000, a.rank + 1.0)
    with a.allreduce_init(x, hpccoll.SUM) as plan:
        plan.start()
        crosswise(a, plan.wait, b.barrier)
        assert (plan.wait() == a.size * (a.size + 1) / 2).all()


def test_a_message_goes_on_while_its_rank_waits_in_another_world(worlds: tuple[hpccoll.World, hpccoll.World]) -> None:
    a, b = worlds
    x = np.full(200_000, float(a.rank))
    if a.rank == 0:
        handle = a.send_async(np.ones(200_000), a.size - 1)
        b.barrier()
        handle.wait()
    else:
        if a.rank == a.size - 1:
            a.recv(x, 0)
            assert (x == 1).all()
        b.barrier()
