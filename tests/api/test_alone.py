# SPDX-License-Identifier: Apache-2.0
"""A set of one rank: its blocking calls without a name take no way through the engine, and give the same results."""

import numpy as np
import pytest

import hpccoll

CALLS = {
    "sum": lambda x, world: world.allreduce(x),
    "in place": lambda x, world: world.allreduce(x, hpccoll.MAX, out=x),
    "factors": lambda x, world: world.allreduce(x, hpccoll.AVERAGE, prescale=3.0, postscale=0.5),
    "logical": lambda x, world: world.allreduce(x, hpccoll.LAND),
    "group": lambda x, world: world.allreduce([x, x[:1]], hpccoll.PRODUCT)[0],
    "strided": lambda x, world: world.allreduce(np.stack([x, x])[:, 1:].T)[:, 0],
    "reduce": lambda x, world: world.reduce(x),
    "broadcast": lambda x, world: world.broadcast(x, out=np.empty_like(x)),
    "scan": lambda x, world: world.scan(x),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_rank_alone_needs_no_batch(threads, call):
    (world,) = threads(1)
    x = np.array([0.0, 1.0, -2.5, 7.0])
    wanted = {"factors": 1.5 * x, "logical": (x != 0).astype(float), "strided": x[1:]}.get(call, x.copy())
    before = world.stats()
    assert (CALLS[call](x, world) == wanted).all()
    after = world.stats()
    assert after["requests"] == before["requests"] + 1 and after["batches"] == before["batches"]


def test_what_others_may_see_takes_the_usual_way(threads):
    (world,) = threads(1)
    x = np.ones(3)
    before = world.stats()["batches"]
    world.allreduce(x, name="named")
    world.allreduce(np.ones(100_000))
    handle = world.allreduce_async(x)
    world.barrier()  # behind one that is in flight
    assert (handle.wait() == 1).all()
    assert world.stats()["batches"] - before >= 3
