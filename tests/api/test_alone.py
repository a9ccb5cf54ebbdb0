# SPDX-License-Identifier: Apache-2.0
"""A set of one rank: its blocking calls without a name take no way through the engine, and give the same results."""

import numpy as np
import pytest

import hpccoll

CALLS = {
    "sum": lambda x, world: hpccoll.allreduce(x, world=world),
    "in place": lambda x, world: hpccoll.allreduce(x, hpccoll.MAX, out=x, world=world),
    "factors": lambda x, world: hpccoll.allreduce(x, hpccoll.AVERAGE, prescale=3.0, postscale=0.5, world=world),
    "logical": lambda x, world: hpccoll.allreduce(x, hpccoll.LAND, world=world),
    "group": lambda x, world: hpccoll.allreduce([x, x[:1]], hpccoll.PRODUCT, world=world)[0],
    "strided": lambda x, world: hpccoll.allreduce(np.stack([x, x])[:, 1:].T, world=world)[:, 0],
    "reduce": lambda x, world: hpccoll.reduce(x, world=world),
    "broadcast": lambda x, world: hpccoll.broadcast(x, out=np.empty_like(x), world=world),
    "scan": lambda x, world: hpccoll.scan(x, world=world),
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
    hpccoll.allreduce(x, name="named", world=world)
    hpccoll.allreduce(np.ones(100_000), world=world)
    handle = hpccoll.allreduce_async(x, world=world)
    hpccoll.barrier(world=world)  # behind one that is in flight
    assert (handle.wait() == 1).all()
    assert world.stats()["batches"] - before >= 3
