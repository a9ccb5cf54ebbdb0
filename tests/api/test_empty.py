# SPDX-License-Identifier: Apache-2.0
"""A World is empty on the ranks that are not in it: false, without ranks, and it refuses every operation."""

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

ONES = np.ones(2)

OPERATIONS = {
    "allreduce": lambda w: hpccoll.allreduce(ONES, world=w),
    "allgather": lambda w: hpccoll.allgather(ONES, world=w),
    "broadcast": lambda w: hpccoll.broadcast(ONES, world=w),
    "reducescatter": lambda w: hpccoll.reducescatter(ONES, world=w),
    "alltoall": lambda w: hpccoll.alltoall(ONES, world=w),
    "reduce": lambda w: hpccoll.reduce(ONES, world=w),
    "gather": lambda w: hpccoll.gather(ONES, world=w),
    "scatter": lambda w: hpccoll.scatter(ONES, world=w),
    "scan": lambda w: hpccoll.scan(ONES, world=w),
    "exscan": lambda w: hpccoll.exscan(ONES, world=w),
    "barrier": lambda w: hpccoll.barrier(world=w),
    "join": lambda w: hpccoll.join(world=w),
    "broadcast_object": lambda w: hpccoll.broadcast_object(1, world=w),
    "send": lambda w: hpccoll.send(ONES, 0, world=w),
    "recv": lambda w: hpccoll.recv(ONES.copy(), 0, world=w),
    "sendrecv": lambda w: hpccoll.sendrecv(ONES, 0, ONES.copy(), 0, world=w),
    "gather_object": lambda w: hpccoll.gather_object(1, world=w),
    "scatter_object": lambda w: hpccoll.scatter_object([1], world=w),
    "probe": lambda w: hpccoll.probe(world=w),
    "recv_object": lambda w: hpccoll.recv_object(world=w),
    "shared_array": lambda w: w.shared_array(3),
    "cart": lambda w: w.cart([1]),
    "subset": lambda w: w.subset([0]),
    "split": lambda w: w.split(0),
    "preemption": lambda w: hpccoll.preemption(world=w),
}
ASYNC = {name for name in OPERATIONS if hasattr(hpccoll, f"{name}_async")}


def test_an_empty_world_has_no_rank(threads):
    def program(world):
        sub = world.subset([1, 2])
        if world.rank:
            assert sub
            assert 0 in sub
            assert 2 not in sub
            return
        assert not sub
        assert (sub.rank, sub.size, sub.local_rank, sub.local_size, sub.cross_rank, sub.cross_size) == (
            None, 0, None, 0, None, 0,
        )  # fmt: skip
        assert 0 not in sub
        assert "empty" in repr(sub)
        assert "ranks 1, 2" in repr(sub)
        with sub:
            pass
        sub.shutdown()  # there is nothing to end

    testing.run(threads(3), program)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_on_it_is_refused_and_names_the_ranks_in_it(threads, operation):
    def program(world):
        sub = world.subset([0, 1])
        if world.rank == 2:
            with pytest.raises(hpccoll.InvalidArgumentError, match=rf"^{operation}: .* ranks 0, 1 are") as error:
                OPERATIONS[operation](sub)
            assert "rank 2 is not in it" in str(error.value)
            assert "if world:" in str(error.value)
        assert hpccoll.allreduce(np.ones(1), world=world)[0] == 3
        return sub

    testing.run(threads(3), program)


@pytest.mark.parametrize("operation", sorted(ASYNC))
def test_the_asynchronous_form_is_refused_at_the_call(threads, operation):
    arguments = {"barrier": (), "join": (), "send": (ONES, 0), "recv": (ONES.copy(), 0)}.get(operation, (ONES,))

    def program(world):
        sub = world.subset([0])
        if not sub:
            with pytest.raises(hpccoll.InvalidArgumentError, match=rf"^{operation}: .* rank 0 is"):
                getattr(hpccoll, f"{operation}_async")(*arguments, world=sub)

    testing.run(threads(2), program)


def test_a_call_outside_meets_no_call_of_the_ranks_inside(everywhere):
    """With None for the World outside, the first call of a rank outside met the second call of the others."""

    def program(world):
        if world.size < 2:
            return
        sub = world.subset(range(world.size - 1))
        if sub:
            assert hpccoll.allreduce(np.ones(1), world=sub)[0] == world.size - 1
        else:
            with pytest.raises(hpccoll.InvalidArgumentError, match="this World is empty here"):
                hpccoll.allreduce(np.ones(1), world=sub)
        assert hpccoll.allreduce(np.full(1, 10.0), world=world)[0] == 10 * world.size

    everywhere(program)


def test_color_none(threads):
    def program(world):
        nobody = world.split(None)
        assert not nobody
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"barrier: .* and no other rank is"):
            hpccoll.barrier(world=nobody)
        even = world.split(None if world.rank == 1 else 7)
        assert even.size == (0 if world.rank == 1 else 2)
        assert even.rank == (0, None, 1)[world.rank]
        again = world.subset([0])  # numbers of sets are free again where no rank has one
        assert bool(again) == (world.rank == 0)

    testing.run(threads(3), program)
