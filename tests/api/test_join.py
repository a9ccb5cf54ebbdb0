# SPDX-License-Identifier: Apache-2.0
"""Ranks with fewer steps: neutral elements for every reduction, empty slices, and who came last."""

import numpy as np
import pytest

import hpccoll


@pytest.mark.parametrize("op", [op for op in hpccoll.Reduction if op is not hpccoll.ADASUM], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float16])
def test_neutral_elements(everywhere, op, dtype):
    if np.dtype(dtype).kind == "f" and op in (hpccoll.BAND, hpccoll.BOR, hpccoll.BXOR):
        return
    alone = np.array([3, -7, 5], dtype)

    def program(world):
        if world.rank == 0:
            for step in range(3):
                got = world.allreduce(alone, op, name=f"n{step}")
                if op == hpccoll.AVERAGE:
                    mean = alone / world.size
                    want = np.trunc(mean) if dtype == np.int32 else mean
                elif op in (hpccoll.LAND, hpccoll.LOR, hpccoll.LXOR):
                    want = alone != 0
                else:
                    want = alone
                np.testing.assert_allclose(got, want.astype(dtype), rtol=1e-3)
        return world.join()

    last = everywhere(program)
    assert len(set(last)) == 1


def test_uneven_steps(everywhere):
    def program(world):
        for step in range(5 + 3 * world.rank):
            still_there = sum(step < 5 + 3 * r for r in range(world.size))
            x = np.ones(1000 + step, np.float32)
            assert (world.allreduce(x, name=f"s{step}") == still_there).all()
        assert world.join() == world.size - 1
        assert world.allreduce(np.ones(1), name="together again")[0] == world.size

    everywhere(program)


def test_gathers_of_the_joined_are_empty(everywhere):
    def program(world):
        p, me = world.size, world.rank
        if me != p - 1 or p == 1:
            there = list(range(max(p - 1, 1)))
            got = world.allgather(np.full((me + 1, 2), me), name="g")
            want = np.concatenate([np.full((r + 1, 2), r) for r in there])
            np.testing.assert_array_equal(got, want)
            received, rows = world.alltoall(np.full(p, me), name="a")
            assert received.tolist() == there
            assert rows.tolist() == [1 if r in there else 0 for r in range(p)]
            share = world.reducescatter(np.ones(2 * p), name="r")
            assert share.tolist() == [len(there)] * 2
            world.barrier(name="b")
            assert world.broadcast(np.array([me + 1]), 0, name="c")[0] == 1
            assert world.allgather_object(me, name="o") == there
        world.join()

    everywhere(program)


def test_a_joined_root_is_an_error(everywhere):
    def program(world):
        if world.size == 1:
            return
        if world.rank > 0:
            with pytest.raises(hpccoll.RootJoinedError, match="lost root"):
                world.broadcast(np.ones(3), 0, name="lost root")
            with pytest.raises(hpccoll.RootJoinedError, match=r"lost object.* rank 0, the root, has joined"):
                world.broadcast_object("x", 0, name="lost object")
        world.join()

    everywhere(program)
