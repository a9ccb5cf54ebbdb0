# SPDX-License-Identifier: Apache-2.0
"""A World is empty on the ranks that are not in it: false, without ranks, and it refuses every operation."""

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

ONES = np.ones(2)

OPERATIONS = {
    "allreduce": lambda w: w.allreduce(ONES),
    "allgather": lambda w: w.allgather(ONES),
    "broadcast": lambda w: w.broadcast(ONES),
    "reducescatter": lambda w: w.reducescatter(ONES),
    "alltoall": lambda w: w.alltoall(ONES),
    "reduce": lambda w: w.reduce(ONES),
    "gather": lambda w: w.gather(ONES),
    "scatter": lambda w: w.scatter(ONES),
    "scan": lambda w: w.scan(ONES),
    "exscan": lambda w: w.exscan(ONES),
    "barrier": lambda w: w.barrier(),
    "join": lambda w: w.join(),
    "broadcast_object": lambda w: w.broadcast_object(1),
    "send": lambda w: w.send(ONES, 0),
    "recv": lambda w: w.recv(ONES.copy(), 0),
    "sendrecv": lambda w: w.sendrecv(ONES, 0, ONES.copy(), 0),
    "gather_object": lambda w: w.gather_object(1),
    "scatter_object": lambda w: w.scatter_object([1]),
    "probe": lambda w: w.probe(),
    "allreduce_init": lambda w: w.allreduce_init(ONES),
    "barrier_init": lambda w: w.barrier_init(),
    "send_init": lambda w: w.send_init(ONES, 0),
    "recv_init": lambda w: w.recv_init(ONES.copy(), 0),
    "capsule": lambda w: w.capsule(),
    "recv_object": lambda w: w.recv_object(),
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
        assert world.allreduce(np.ones(1))[0] == 3
        return sub

    testing.run(threads(3), program)


@pytest.mark.parametrize("operation", sorted(ASYNC))
def test_the_asynchronous_form_is_refused_at_the_call(threads, operation):
    arguments = {"barrier": (), "join": (), "send": (ONES, 0), "recv": (ONES.copy(), 0)}.get(operation, (ONES,))

    def program(world):
        sub = world.subset([0])
        if not sub:
            with pytest.raises(hpccoll.InvalidArgumentError, match=rf"^{operation}: .* rank 0 is"):
                getattr(sub, f"{operation}_async")(*arguments)

    testing.run(threads(2), program)


def test_a_call_outside_meets_no_call_of_the_ranks_inside(everywhere):
    """With None for the World outside, the first call of a rank outside met the second call of the others."""

    def program(world):
        if world.size < 2:
            return
        sub = world.subset(range(world.size - 1))
        if sub:
            assert sub.allreduce(np.ones(1))[0] == world.size - 1
        else:
            with pytest.raises(hpccoll.InvalidArgumentError, match="this World is empty here"):
                sub.allreduce(np.ones(1))
        assert world.allreduce(np.full(1, 10.0))[0] == 10 * world.size

    everywhere(program)


def test_color_none(threads):
    def program(world):
        nobody = world.split(None)
        assert not nobody
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"barrier: .* and no other rank is"):
            nobody.barrier()
        even = world.split(None if world.rank == 1 else 7)
        assert even.size == (0 if world.rank == 1 else 2)
        assert even.rank == (0, None, 1)[world.rank]
        again = world.subset([0])  # numbers of sets are free again where no rank has one
        assert bool(again) == (world.rank == 0)

    testing.run(threads(3), program)
