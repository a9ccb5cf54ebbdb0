# SPDX-License-Identifier: Apache-2.0
"""Blocking calls of few bytes without a name: ranks on one node need no agreement, or agree in the engine."""

import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import numpy as np
import pytest

import hpccoll
from hpccoll import errors, testing

pytestmark = pytest.mark.timeout(200)


def on_one_node(world: hpccoll.World) -> bool:
    return len({world.base.loop.node_of[member] for member in world.core.members}) == 1


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "?"])
def test_results_are_those_of_named_calls(everywhere, dtype):
    def program(world):
        root, own = world.size - 1, np.random.default_rng(world.rank)
        before = world.stats()["shortcuts"]
        for shape in ((), (1,), (3, 5), (1, 2, 3, 4), (64,)):
            x = np.asarray(own.standard_normal(shape) * 50).astype(dtype)
            ops = [hpccoll.SUM, hpccoll.AVERAGE, hpccoll.MAX, hpccoll.PRODUCT, hpccoll.LAND]
            for op in ops[2:] if dtype == "?" else ops:
                wanted = hpccoll.allreduce(x, op, name="named", world=world)
                assert np.array_equal(hpccoll.allreduce(x, op, world=world), wanted, equal_nan=True)
                out, wanted = np.empty_like(x), hpccoll.reduce(x, op=op, root=root, name="named reduce", world=world)
                result = hpccoll.reduce(x, op=op, root=root, out=out, world=world)
                assert result is (out if world.rank == root else None)
                assert world.rank != root or np.array_equal(out, wanted, equal_nan=True)
            wanted = hpccoll.broadcast(x, root, name="named", world=world)
            assert np.array_equal(hpccoll.broadcast(x, root, world=world), wanted)
            if dtype == "f8":
                wanted = hpccoll.allreduce(x, name="named", prescale=0.5, postscale=3.0, world=world)
                hpccoll.allreduce(x, out=x, prescale=0.5, postscale=3.0, world=world)
                assert np.array_equal(x, wanted)
            hpccoll.barrier(world=world)
        taken = world.stats()["shortcuts"] - before
        assert taken > 0 if world.size == 1 else on_one_node(world) or taken == 0

    everywhere(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda rank, world: hpccoll.allreduce(np.ones(2 + rank), world=world),
        lambda rank, world: hpccoll.allreduce(np.ones((2, 1 + rank)[rank:]), world=world),
        lambda rank, world: hpccoll.allreduce(np.ones(2, "f4" if rank else "f8"), world=world),
        lambda rank, world: hpccoll.allreduce(np.ones(2), hpccoll.MAX if rank else hpccoll.MIN, world=world),
        lambda rank, world: hpccoll.allreduce(np.ones(2), prescale=1.0 + rank, world=world),
        lambda rank, world: hpccoll.allreduce(np.ones(2 + 9000 * rank), world=world),  # too large on one
        lambda rank, world: hpccoll.broadcast(np.ones(2), rank, world=world),
        lambda rank, world: hpccoll.reduce(np.ones(2), root=rank, world=world),
        lambda rank, world: hpccoll.barrier(world=world) if rank else hpccoll.broadcast(np.ones(1), world=world),
        lambda rank, world: hpccoll.allgather(np.ones(1), world=world) if rank else hpccoll.barrier(world=world),
    ],
)
def test_ranks_that_disagree(threads, call):
    def program(world):
        words = []
        for _ in range(3):
            x = np.full(3, world.rank + 1.0)
            with pytest.raises(errors.MismatchError) as raised:
                call(world.rank, world)
            words.append(str(raised.value))
            assert (hpccoll.allreduce(x, out=x, world=world) == 3).all()
            hpccoll.barrier(world=world)
        return words

    assert len(set(map(tuple, testing.run(threads(2), program)))) == 1


def test_they_come_together_again(threads):
    """After one was late, after an asynchronous call on one rank, and after a join."""

    def program(world):
        x, me = np.ones(3), world.rank

        def is_short() -> bool:
            before = world.stats()["shortcuts"]
            for _ in range(200):
                assert (hpccoll.allreduce(x, world=world) == 3).all()
            return world.stats()["shortcuts"] > before

        assert is_short()
        for k in range(3):
            if me == k:
                time.sleep(0.01)
                assert (hpccoll.allreduce_async(x, world=world).wait() == 3).all()
            else:
                assert (hpccoll.allreduce(x, world=world) == 3).all()
        assert is_short()
        for _ in range(me):
            total = hpccoll.allreduce(np.ones(2), world=world)
            assert (total <= 2).all()
        assert hpccoll.join(world=world) == 2
        assert is_short()

    testing.run(threads(3), program)


def test_a_call_from_another_thread_is_refused_meanwhile(threads):
    """A rank that waits for the others has an unnamed call in flight, by either way."""
    worlds = threads(2)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(hpccoll.barrier, world=worlds[0]) for _ in range(2)]
        (refused,), (waits,) = wait(calls, timeout=60, return_when=FIRST_COMPLETED)
        with pytest.raises(errors.InvalidArgumentError, match="another thread"):
            refused.result()
        hpccoll.barrier(world=worlds[1])
        waits.result(60)


def test_a_rank_does_not_come(threads):
    given_up = threading.Event()

    def program(world):
        if world.rank == 0:
            with pytest.raises(errors.StallError, match="rank 1"):
                hpccoll.allreduce(np.ones(1), world=world)
            given_up.set()
        else:
            assert given_up.wait(60)
            with pytest.raises(errors.RecoverableError):
                hpccoll.barrier(world=world)

    worlds = threads(2, stall_warning=0.2, stall_limit=0.8)
    testing.run(worlds, program)
