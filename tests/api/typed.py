# SPDX-License-Identifier: Apache-2.0
"""Checks the types of the operations. It never runs: in `make check` mypy reads it; each `ignore` must be needed."""

from typing import assert_type

import numpy as np

import hpccoll
from hpccoll import Handle

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def an_array_of_one_kind_gives_the_same_kind(world: hpccoll.World, x: Vector) -> None:
    """The function of the package is known as well as the method."""
    assert_type(world.allreduce(x), Vector)
    assert_type(hpccoll.allreduce(x, hpccoll.MAX, name="x", prescale=2, out=x), Vector)
    assert_type(world.allreduce_async(x), Handle[Vector])
    assert_type(world.broadcast_async(x).wait(), Vector)
    assert_type(hpccoll.reducescatter(x), Vector)
    assert_type(world.allreduce([x, x]), list[Vector])
    assert_type(world.allreduce(bytearray(8)), bytearray)
    assert_type(world.alltoall(x, [1]), tuple[Vector, np.ndarray])
    assert_type(hpccoll.scatter(None, out=x), Vector)
    assert_type(hpccoll.wait_all([world.allgather_async(x), world.scan_async(x)]), list[Vector])


def a_rank_may_get_nothing(world: hpccoll.World, x: Vector, op: hpccoll.UserReduction) -> None:
    """Ranks that are not the root, and rank 0 of some exscans, may get None."""
    assert_type(hpccoll.reduce(x, root=1), Vector | None)
    assert_type(world.gather(x, 1), Vector | None)
    assert_type(world.exscan(x), Vector)
    assert_type(world.exscan(x, op), Vector | None)
    assert_type(world.exscan(x, op, out=x), Vector)


def other_values_become_arrays(world: hpccoll.World, x: Vector) -> None:
    """Numbers, lists of numbers, and objects, which stay what they are."""
    assert_type(hpccoll.allreduce(1), np.number)
    assert_type(world.allgather(1), np.ndarray)
    assert_type(world.allgather(np.float32(1)), np.ndarray)
    assert_type(world.broadcast([1, 2.5]), np.ndarray)
    assert_type(world.allgather_object("a"), list[str])
    assert_type(world.recv_async(x).wait(), int)


def wrong_calls_are_found(world: hpccoll.World, x: Vector) -> None:
    """Without running them."""
    hpccoll.allreduce(x, nam="x")  # type: ignore[call-overload]
    hpccoll.allreduce(x, world=world)  # type: ignore[call-overload]
    world.recv(3)  # type: ignore[arg-type]
    world.allreduce_init(x, root=0)  # type: ignore[call-arg]
