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
                wanted = world.allreduce(x, op, name="named")
                assert np.array_equal(world.allreduce(x, op), wanted, equal_nan=True)
                out, wanted = np.empty_like(x), world.reduce(x, op=op, root=root, name="named reduce")
                result = world.reduce(x, op=op, root=root, out=out)
                assert result is (out if world.rank == root else None)
                assert world.rank != root or np.array_equal(out, wanted, equal_nan=True)
            wanted = world.broadcast(x, root, name="named")
            assert np.array_equal(world.broadcast(x, root), wanted)
            if dtype == "f8":
                wanted = world.allreduce(x, name="named", prescale=0.5, postscale=3.0)
                world.allreduce(x, out=x, prescale=0.5, postscale=3.0)
                assert np.array_equal(x, wanted)
            world.barrier()
        taken = world.stats()["shortcuts"] - before
        assert taken > 0 if world.size == 1 else on_one_node(world) or taken == 0

    everywhere(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda rank, world: world.allreduce(np.ones(2 + rank)),
        lambda rank, world: world.allreduce(np.ones((2, 1 + rank)[rank:])),
        lambda rank, world: world.allreduce(np.ones(2, "f4" if rank else "f8")),
        lambda rank, world: world.allreduce(np.ones(2), hpccoll.MAX if rank else hpccoll.MIN),
        lambda rank, world: world.allreduce(np.ones(2), prescale=1.0 + rank),
        lambda rank, world: world.allreduce(np.ones(2 + 9000 * rank)),  # too large on one
        lambda rank, world: world.broadcast(np.ones(2), rank),
        lambda rank, world: world.reduce(np.ones(2), root=rank),
        lambda rank, world: world.barrier() if rank else world.broadcast(np.ones(1)),
        lambda rank, world: world.allgather(np.ones(1)) if rank else world.barrier(),
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
            assert (world.allreduce(x, out=x) == 3).all()
            world.barrier()
        return words

    assert len(set(map(tuple, testing.run(threads(2), program)))) == 1


def test_they_come_together_again(threads):
    """After one was late, after an asynchronous call on one rank, and after a join."""

    def program(world):
        x, me = np.ones(3), world.rank

        def is_short() -> bool:
            before = world.stats()["shortcuts"]
            for _ in range(200):
                assert (world.allreduce(x) == 3).all()
            return world.stats()["shortcuts"] > before

        assert is_short()
        for k in range(3):
            if me == k:
                time.sleep(0.01)
                assert (world.allreduce_async(x).wait() == 3).all()
            else:
                assert (world.allreduce(x) == 3).all()
        assert is_short()
        for _ in range(me):
            total = world.allreduce(np.ones(2))
            assert (total <= 2).all()
        assert world.join() == 2
        assert is_short()

    testing.run(threads(3), program)


def test_a_call_from_another_thread_is_refused_meanwhile(threads):
    """A rank that waits for the others has an unnamed call in flight, by either way."""
    worlds = threads(2)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(worlds[0].barrier) for _ in range(2)]
        (refused,), (waits,) = wait(calls, timeout=60, return_when=FIRST_COMPLETED)
        with pytest.raises(errors.InvalidArgumentError, match="another thread"):
            refused.result()
        worlds[1].barrier()
        waits.result(60)


def test_a_rank_does_not_come(threads):
    given_up = threading.Event()

    def program(world):
        if world.rank == 0:
            with pytest.raises(errors.StallError, match="rank 1"):
                world.allreduce(np.ones(1))
            given_up.set()
        else:
            assert given_up.wait(60)
            with pytest.raises(errors.RecoverableError):
                world.barrier()

    worlds = threads(2, stall_warning=0.2, stall_limit=0.8)
    testing.run(worlds, program)
