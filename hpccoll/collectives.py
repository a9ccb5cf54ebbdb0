# SPDX-License-Identifier: Apache-2.0
"""The operations: each blocking, and as NAME_async, which returns a Handle.

Arguments that many of them share:

x
    A NumPy array, or anything with the buffer protocol or DLPack in host memory, strided or not. Python numbers and
    lists of numbers become NumPy arrays. In the memory of a GPU: a CuPy array, a CUDA tensor, or anything with
    __cuda_array_interface__ or DLPack; then order is that of streams (docs/guide.md). It belongs to the library until
    the operation is finished.
out
    Where the result goes; `out=x` works in place. Default: a new array of the type of `x`.
name
    What matches the calls of different ranks, in any order. Calls without a name match by their order.
world
    Default: the World of `init()`.

Raise MismatchError if ranks call with different arguments under one name, InvalidArgumentError,
UnsupportedError or ResultSizeError if an argument is wrong here, and what hpccoll.errors says beside.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpccoll import _core, objects
from hpccoll.compression import Compression
from hpccoll.world import World, current

__all__ = [
    "ANY_SOURCE", "AVERAGE", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MIN", "PRODUCT", "SUM", "Handle",
    "Reduction", "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_async", "alltoall",
    "alltoall_async", "barrier", "barrier_async", "broadcast", "broadcast_async", "broadcast_object", "join",
    "join_async", "recv", "recv_async", "reducescatter", "reducescatter_async", "send", "send_async",
]  # fmt: skip

Handle = _core.Handle
ANY_SOURCE = -1


class Reduction(enum.IntEnum):
    """How values are combined. docs/reductions.md says for which dtypes."""

    SUM = _core.REDUCTIONS.index("SUM")
    AVERAGE = _core.REDUCTIONS.index("AVERAGE")
    MIN = _core.REDUCTIONS.index("MIN")
    MAX = _core.REDUCTIONS.index("MAX")
    PRODUCT = _core.REDUCTIONS.index("PRODUCT")
    BAND = _core.REDUCTIONS.index("BAND")
    BOR = _core.REDUCTIONS.index("BOR")
    BXOR = _core.REDUCTIONS.index("BXOR")
    LAND = _core.REDUCTIONS.index("LAND")
    LOR = _core.REDUCTIONS.index("LOR")
    LXOR = _core.REDUCTIONS.index("LXOR")


SUM, AVERAGE, MIN, MAX, PRODUCT = (
    Reduction.SUM, Reduction.AVERAGE, Reduction.MIN, Reduction.MAX, Reduction.PRODUCT
)  # fmt: skip
BAND, BOR, BXOR = Reduction.BAND, Reduction.BOR, Reduction.BXOR
LAND, LOR, LXOR = Reduction.LAND, Reduction.LOR, Reduction.LXOR


def allreduce(
    x: Any,
    op: Reduction = SUM,
    *,
    name: str | None = None,
    out: Any = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    compression: Compression | None = None,
    world: World | None = None,
) -> Any:
    """Combine the arrays of all ranks; every rank gets the result.

    :param x: an array of equal shape and dtype on all ranks, or a list of arrays: a group, which is agreed, fused
        and completed together, and whose result is a list
    :param op: AVERAGE divides by the number of ranks of the World, joined ones included; integers towards zero
    :param prescale: factor of each input, postscale: of the result; for SUM and AVERAGE of inexact types. Both
        are applied as one factor, in float32 or wider, before anything is narrowed
    :param compression: hpccoll.compression.FP16 or BF16, for float32 and float64
    """
    return current(world).core.allreduce(x, op, name, out, prescale, postscale, compression, True).wait()


def allreduce_async(
    x: Any,
    op: Reduction = SUM,
    *,
    name: str | None = None,
    out: Any = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    compression: Compression | None = None,
    world: World | None = None,
) -> Handle:
    """Begin an allreduce."""
    return current(world).core.allreduce(x, op, name, out, prescale, postscale, compression, False)


def allgather(x: Any, *, name: str | None = None, out: Any = None, world: World | None = None) -> Any:
    """Concatenate the arrays of all ranks along their first dimension, which may differ; the others may not.

    :param x: an array; one without dimensions counts as one row
    """
    return current(world).core.allgather(x, name, out, True).wait()


def allgather_async(
    x: Any, *, name: str | None = None, out: Any = None, world: World | None = None
) -> Handle:
    """Begin an allgather."""
    return current(world).core.allgather(x, name, out, False)


def broadcast(
    x: Any, root: int = 0, *, name: str | None = None, out: Any = None, world: World | None = None
) -> Any:
    """Give the root's array to all ranks.

    :param x: the values on the root; shape and dtype on the others
    :param root: rank of the World
    """
    return current(world).core.broadcast(x, root, name, out, True).wait()


def broadcast_async(
    x: Any, root: int = 0, *, name: str | None = None, out: Any = None, world: World | None = None
) -> Handle:
    """Begin a broadcast."""
    return current(world).core.broadcast(x, root, name, out, False)


def reducescatter(
    x: Any,
    op: Reduction = SUM,
    *,
    name: str | None = None,
    out: Any = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    world: World | None = None,
) -> Any:
    """Combine the arrays of all ranks; each rank gets its share of the rows.

    :param x: an array of equal shape and dtype on all ranks. Of n rows, the first n mod size ranks get one more
    """
    return current(world).core.reducescatter(x, op, name, out, prescale, postscale, True).wait()


def reducescatter_async(
    x: Any,
    op: Reduction = SUM,
    *,
    name: str | None = None,
    out: Any = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    world: World | None = None,
) -> Handle:
    """Begin a reducescatter."""
    return current(world).core.reducescatter(x, op, name, out, prescale, postscale, False)


def alltoall(
    x: Any,
    splits: Sequence[int] | None = None,
    *,
    name: str | None = None,
    out: Any = None,
    world: World | None = None,
) -> tuple[Any, np.ndarray]:
    """Send a part of the rows to each rank.

    :param splits: how many rows go to each rank; default: as many to each
    :returns: the rows received, in order of the ranks, and how many came from each (int64)
    """
    result: tuple[Any, np.ndarray] = current(world).core.alltoall(x, splits, name, out, True).wait()
    return result


def alltoall_async(
    x: Any,
    splits: Sequence[int] | None = None,
    *,
    name: str | None = None,
    out: Any = None,
    world: World | None = None,
) -> Handle:
    """Begin an alltoall."""
    return current(world).core.alltoall(x, splits, name, out, False)


def barrier(*, name: str | None = None, world: World | None = None) -> None:
    """Wait until all ranks have called this."""
    current(world).core.barrier(name, True).wait()


def barrier_async(*, name: str | None = None, world: World | None = None) -> Handle:
    """Begin a barrier."""
    return current(world).core.barrier(name, False)


def join(*, world: World | None = None) -> int:
    """Say that this rank has no more operations, and wait until all ranks have said so.

    Meanwhile it takes part in the operations of the others with neutral elements.

    :returns: the last rank to join
    """
    last: int = current(world).core.join(True).wait()
    return last


def join_async(*, world: World | None = None) -> Handle:
    """Begin a join."""
    return current(world).core.join(False)


def send(x: Any, dest: int, *, tag: int = 0, world: World | None = None) -> None:
    """Send an array to one rank, which calls recv; nobody else takes part.

    Arrays of one sender, receiver and tag arrive in the order in which they were sent. This returns when `x` may be
    changed: of a small array (8 KiB) at once, of a larger one when it was received. An array on a GPU may be received
    in host memory, and the other way round.

    :param dest: rank of the World
    :param tag: 0 to 2**32 - 1; a receive takes what has its tag
    """
    current(world).core.send(x, dest, tag, True).wait()


def send_async(x: Any, dest: int, *, tag: int = 0, world: World | None = None) -> Handle:
    """Begin a send."""
    return current(world).core.send(x, dest, tag)


def recv(x: Any, source: int = ANY_SOURCE, *, tag: int = 0, world: World | None = None) -> int:
    """Receive an array from one rank, or from any.

    :param x: a writable array, which is filled; it has as many bytes as the array that was sent, or a
        ResultSizeError says what came, and nothing was written
    :param source: rank of the World, or ANY_SOURCE
    :returns: the rank that sent it
    """
    came_from: int = current(world).core.recv(x, source, tag, True).wait()
    return came_from


def recv_async(x: Any, source: int = ANY_SOURCE, *, tag: int = 0, world: World | None = None) -> Handle:
    """Begin a receive. Its handle's wait() returns the rank that sent, which then is its `peer`, too."""
    return current(world).core.recv(x, source, tag)


def broadcast_object(obj: Any, root: int = 0, *, name: str | None = None, world: World | None = None) -> Any:
    """Give the root's object, which pickle must know, to all ranks. ObjectError on all of them if it does not."""
    return objects.broadcast(current(world).core, obj, root, name)


def allgather_object(obj: Any, *, name: str | None = None, world: World | None = None) -> list[Any]:
    """Collect one object of each rank, which pickle must know, in order of the ranks. ObjectError as there."""
    return objects.allgather(current(world).core, obj, name)
