# SPDX-License-Identifier: Apache-2.0
"""Adasum: a sum that keeps its length where gradients point the same way, and adds them where they are orthogonal.

Two vectors a and b become a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2); more of them pairwise, in a binary tree over
the ranks (0 with 1, 2 with 3, then 01 with 23, ...). Source: S. Maleki et al., "Scaling Distributed Training with
Adaptive Summation", MLSys 2021, algorithm 1.

The messages do not follow the tree. One alltoall gives each rank its share of all vectors, so it can combine every pair
of a level; only the three scalar products of each pair are summed over the ranks, in float64. An allgather assembles
the shares. That costs the bytes of a ring allreduce and log2(ranks) small allreduces.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import math
import sys
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from hpccoll import errors
from hpccoll.collectives import Handle
from hpccoll.lost_errors import warn_of_lost_error
from hpccoll.worlds import World

__all__ = ["Procedure", "begin", "combine"]

TINY = np.sqrt(sys.float_info.min)
"""A squared length below this counts as zero: such a vector is added as it is."""

_unnamed: weakref.WeakKeyDictionary[World, weakref.WeakSet[Handle]] = weakref.WeakKeyDictionary()
"""The first requests of each World's Adasums without a name. They end with their Adasums, and so do their arrays."""


class Procedure:
    """An Adasum in progress."""

    def __init__(self, future: concurrent.futures.Future[np.ndarray], first: Handle, rank: int) -> None:
        """:param first: its first request"""
        self._future, self._first, self._rank, self._waited = future, first, rank, False

    @property
    def number(self) -> int:
        """The number of its first request, see hpccoll.frontend.handles.Waitable."""
        number: int = self._first.number
        return number

    def __del__(self) -> None:
        if not self._waited:
            self._future.add_done_callback(functools.partial(_warn, self._rank))

    def done(self) -> bool:
        """Whether it is finished, successfully or not."""
        return self._future.done()

    launched = done  # as for a request: its name is free again

    def wait(self) -> np.ndarray:
        """Block until it is finished; return the result, which has the shape and dtype of the input."""
        self._waited = True
        try:
            return self._future.result()
        except errors.HpccollError:
            self._first.wait()  # raises its error in this thread, which must know that the other ranks have it, too
            raise


def _warn(rank: int, done: concurrent.futures.Future[np.ndarray]) -> None:
    if (error := done.exception()) is not None:
        warn_of_lost_error(f"rank {rank}", error)


def begin(x: np.ndarray, name: str | None, world: World) -> Procedure:
    """Start the Adasum of one array.

    If MPI allows calls from one thread only, it is finished on return. The alltoall begins here, so that calls without
    a name are in the program's order; the later requests are named after it.

    :param x: float32 or float64; it is copied
    :param name: matches the calls of different ranks; calls without a name match by their order
    :raises NotDefinedError: the number of ranks is no power of two
    :raises UnsupportedError: the array has another dtype
    """
    if world.size & (world.size - 1):
        raise errors.NotDefinedError(f"Adasum needs a power of two of ranks, the process set has {world.size}")
    if x.dtype not in (np.float32, np.float64):
        raise errors.UnsupportedError(f"Adasum of {x.dtype}: it is for floating-point values")
    p = world.size
    shares = np.zeros((p, max(1, -(-x.size // p))), x.dtype)
    shares.reshape(-1)[: x.size] = x.reshape(-1)
    first = world.alltoall_async(shares, name=None if name is None else f"adasum.{name}.shares")
    earlier = [one for one in _unnamed.get(world, ()) if name is None and not one.done()]
    if name is None:
        _unnamed.setdefault(world, weakref.WeakSet()).add(first)
    run = _run(first, earlier, shares, x.shape, name, world)
    if world.base.loop.background:
        return Procedure(asyncio.run_coroutine_threadsafe(run, _reactor()), first, world.rank)
    future: concurrent.futures.Future[np.ndarray] = concurrent.futures.Future()
    try:
        future.set_result(asyncio.run(run))
    except errors.HpccollError as error:
        future.set_exception(error)
    return Procedure(future, first, world.rank)


async def _name(first: Handle, earlier: Sequence[Handle]) -> str:
    """Name an Adasum without a name: after the entry of the log that has its first request, and its place there.

    The entry is the same on all ranks, and so is the order of such requests in it.

    :param first: this request, which is done
    :param earlier: those that were in flight when it began: no other may be in the same entry, before it
    """
    for one in earlier:
        with contextlib.suppress(errors.HpccollError):  # raised where its result is awaited
            await one
    return f"call {first.number}.{sum(one.number == first.number for one in earlier)}"


async def _run(
    first: Handle, earlier: Sequence[Handle], shares: np.ndarray, shape: tuple[int, ...], name: str | None, world: World
) -> np.ndarray:
    vectors, rows = await first
    name, size = f"adasum.{await _name(first, earlier) if name is None else name}", math.prod(shape)
    if not rows.all():
        return (await _without_joined(shares, rows > 0, name, world))[:size].reshape(shape)
    for level in range(world.size.bit_length() - 1):
        a, b = vectors[0::2], vectors[1::2]
        products = await world.allreduce_async(_products(a, b), name=f"{name}.level{level}")
        vectors = combine(a, b, products)
    whole: np.ndarray = await world.allgather_async(vectors[0], name=f"{name}.result")
    return whole[:size].reshape(shape)


async def _without_joined(shares: np.ndarray, present: np.ndarray, name: str, world: World) -> np.ndarray:
    """Combine if ranks have joined: their vectors are zero, and each other rank computes the whole result."""
    gathered = await world.allgather_async(shares.reshape(1, -1), name=f"{name}.whole")
    vectors = np.zeros((len(present), shares.size), shares.dtype)
    vectors[present] = gathered
    while len(vectors) > 1:
        a, b = vectors[0::2], vectors[1::2]
        vectors = combine(a, b, _products(a, b))
    result: np.ndarray = vectors[0]
    return result


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the scalar products a.a, b.b, a.b of row pairs: float64 of shape (3, n) for (n, length)."""
    wide = functools.partial(np.einsum, "ij,ij->i", dtype=np.float64, casting="safe")
    return np.stack([wide(a, a), wide(b, b), wide(a, b)])


def combine(a: np.ndarray, b: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Return the Adasum of row pairs.

    :param a: parts of n vectors, of shape (n, length); `b` likewise
    :param products: the scalar products a.a, b.b, a.b of the whole vectors, of shape (3, n)
    :returns: an array of shape (n, length) in the dtype of `a`
    """
    aa, bb, ab = products
    of_a = 1.0 - np.divide(ab, 2.0 * aa, out=np.zeros_like(ab), where=aa >= TINY)
    of_b = 1.0 - np.divide(ab, 2.0 * bb, out=np.zeros_like(ab), where=bb >= TINY)
    result: np.ndarray = of_a[:, None].astype(a.dtype) * a + of_b[:, None].astype(b.dtype) * b
    return result


# ---- the thread that runs procedures step by step ------ ------------------------------------------------


@functools.cache
def _reactor() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="hpccoll-adasum", daemon=True).start()
    return loop
