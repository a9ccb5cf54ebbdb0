# SPDX-License-Identifier: Apache-2.0
"""Process sets: who is in them, overlapping ones in random order, their end."""

import itertools
import random
import threading

import numpy as np
import pytest

import hpccoll
from hpccoll import testing


def test_numbers(everywhere):
    def program(world):
        assert (world.rank, world.size) == (world.base.loop.rank, world.base.loop.size)
        same_node = world.allgather_object(world.base.loop.node_of[world.rank])
        assert world.local_size == same_node.count(same_node[world.rank])
        assert world.local_rank == same_node[: world.rank].count(same_node[world.rank])
        return world.local_rank, world.cross_rank, world.cross_size

    everywhere(program)


def test_uneven_nodes_have_uneven_cross_sizes(threads):
    worlds = threads(4, nodes="3+1")
    assert [(w.local_rank, w.local_size) for w in worlds] == [(0, 3), (1, 3), (2, 3), (0, 1)]
    assert [(w.cross_rank, w.cross_size) for w in worlds] == [(0, 2), (0, 1), (0, 1), (1, 2)]


def test_subset_and_split(everywhere):
    def program(world):
        backwards = list(range(world.size))[::-1]
        turned = world.subset(backwards)
        assert turned.rank == world.size - 1 - world.rank
        got = turned.allgather(np.array([world.rank]))
        assert got.tolist() == backwards
        parity = world.split(color=world.rank % 2, key=-world.rank)
        members = [r for r in backwards if r % 2 == world.rank % 2]
        assert parity.allgather(np.array([world.rank])).tolist() == members
        nested = parity.subset([0])
        assert bool(nested) == (parity.rank == 0)
        assert not world.split(color=None)
        outside = world.split(0 if world.rank == 0 else -32766)  # MPI_UNDEFINED, as mpi4py's MPI.UNDEFINED
        assert bool(outside) == (world.rank == 0)
        for made in (nested, parity, turned):
            if made:
                made.shutdown()
                with pytest.raises(hpccoll.ShutDownError):
                    made.barrier()
        again = world.subset([0])
        if world.rank == 0:
            assert again.allreduce(np.ones(1))[0] == 1
            again.shutdown()

    everywhere(program)


def test_wrong_subsets(everywhere):
    def program(world):
        for ranks in ([], [0, 0], [-1], [world.size], 1, "ab", [0.5]):
            with pytest.raises(hpccoll.InvalidArgumentError):
                world.subset(ranks)
        if world.size > 1:
            for ranks in ([1], [world.size], 1):  # rank 0's alone: the others need not wait to learn of it
                with pytest.raises(hpccoll.MismatchError, match="rank 0 says"):
                    world.subset([0] if world.rank else ranks)
        for color, key in (("red", 0), (0.5, 0), (0, "first")):
            with pytest.raises(hpccoll.InvalidArgumentError, match="split: rank 0 says"):
                world.split(0 if world.rank else color, key if world.rank == 0 else 0)
        world.barrier()

    everywhere(program)


@pytest.mark.parametrize("nodes", ["", *(pytest.param(n, marks=pytest.mark.slow) for n in ("2+2", "4")), "1+1+2"])
@pytest.mark.timeout(300)
def test_overlapping_sets_in_random_order(threads, nodes):
    """Every pair and triple of 4 ranks, 1000 rounds; each rank submits and waits in an order of its own."""
    groups = [g for n in (2, 3) for g in itertools.combinations(range(4), n)]

    def program(world):
        own = {g: world.subset(g) for g in groups}
        mine = [g for g in groups if own[g]]
        order = random.Random(world.rank)
        for step in range(1000):
            handles = {
                g: own[g].allreduce_async(np.full(1 + step % 700, float(step)), name="x")
                for g in order.sample(mine, len(mine))
            }
            for g in order.sample(mine, len(mine)):
                assert (handles[g].wait() == step * len(g)).all()

    testing.run(threads(4, nodes=nodes), program)


def test_who_is_early_waits_for_the_others_sets(threads):
    """A rank that has nothing more to do ends the World; another set is still at work."""

    def program(world):
        half = world.split(world.rank % 2)
        if world.rank % 2:
            threading.Event().wait(0.3)
        assert half.allreduce(1) == 2
        world.shutdown()

    testing.run(threads(4, nodes="2+2"), program)


def test_what_was_agreed_is_finished_before_the_end(threads):
    """Shut down with large batches in flight: agreed on all ranks, so finished on all."""

    def program(world):
        half = world.split(world.rank % 2)
        x, y = np.ones(3_000_000, np.float32), np.ones(3_000_000, np.float32)
        first = world.allreduce_async(x, name="x", out=x)
        second = half.allreduce_async(y, name="y", out=y)
        world.barrier(name="all have asked")  # behind x in the log of the World
        half.barrier(name="all have asked")
        half.shutdown()
        world.shutdown()
        assert first.wait()[-1] == 4
        assert second.wait()[-1] == 2

    for nodes in ("", "2+2"):
        testing.run(threads(4, nodes=nodes), program)


def test_the_worlds_end_ends_its_sets(threads):
    def program(world):
        pair = world.split(world.rank // 2)
        world.barrier()
        world.shutdown()
        with pytest.raises(hpccoll.ShutDownError):
            pair.allreduce(np.ones(1))

    testing.run(threads(4, nodes="2+2"), program)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        ("split", 0),
        pytest.param("subset", [0, 1], marks=pytest.mark.slow),
        pytest.param("cart", [2], marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_does_not_come_is_named_in_time(call, argument):
    """The others wait for HPCCOLL_START_TIMEOUT, not for ever, and name it."""
    over = threading.Barrier(3, timeout=30)

    def program(world):
        if world.rank != 2:
            with pytest.raises(hpccoll.StartError) as raised:
                getattr(world, call)(argument)
            said = str(raised.value)
            assert said.startswith(f"{call}: not all ranks came within 4 s (HPCCOLL_START_TIMEOUT): "), said
            assert "for 1 of 3 ranks: " in said and "rank 2 (host " in said, said
        over.wait()
        world.shutdown(wait=False)

    testing.make_and_run(3, program, start_timeout=4.0, stall_warning=0.2)
