# SPDX-License-Identifier: Apache-2.0
"""The measured collectives: their arrays, expected results, and bandwidths.

Sizes and bandwidths are those of nccl-tests (its doc/PERFORMANCE.md): `bytes` is the larger of a rank's input and
output, algbw is bytes divided by time, and busbw is algbw times a factor that makes it comparable with the bandwidth
of the slowest link, whatever the number of ranks. nccl-tests has no scan, exscan and barrier: the factor is 1 there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PERIOD, KINDS = 7, 3
"""The data: (index % 7) + (rank % 3). The sums are small whole numbers, which also 16-bit types hold."""


@dataclass(frozen=True)
class Collective:
    """The facts for measuring one collective."""

    name: str
    factor: Callable[[int], float]
    """busbw divided by algbw, for a number of ranks."""
    parts: bool = False
    """The array is divided among the ranks, so that its elements are a multiple of their number."""
    reduces: bool = False
    places: bool = False
    """A program can have the result in the array of its input, or in another one."""


def _both_ways(n: int) -> float:
    return 2 * (n - 1) / n


def _others(n: int) -> float:
    return (n - 1) / n


def _once(n: int) -> float:
    del n
    return 1.0


COLLECTIVES = {
    c.name: c
    for c in (
        Collective("allreduce", _both_ways, reduces=True, places=True),
        Collective("allgather", _others, parts=True),
        Collective("reducescatter", _others, parts=True, reduces=True),
        Collective("broadcast", _once),
        Collective("alltoall", _others, parts=True),
        Collective("reduce", _once, reduces=True, places=True),
        Collective("gather", _others, parts=True),
        Collective("scatter", _others, parts=True),
        Collective("scan", _once, reduces=True, places=True),
        Collective("exscan", _once, reduces=True, places=True),
        Collective("sendrecv", _once),
        Collective("barrier", _once),
    )
}


@dataclass
class Task:
    """One collective of one size, on this rank."""

    collective: Collective
    x: Array
    """The input of this rank; in place also the result, as always of a broadcast."""
    out: Array
    rank: int
    ranks: int

    @property
    def in_place(self) -> bool:
        """Whether the result replaces the input."""
        return self.out is self.x

    @property
    def nbytes(self) -> int:
        """The size, as tables show it."""
        return max(self.x.nbytes, self.out.nbytes)

    def fill(self) -> None:
        """Write this rank's data."""
        self.x[...] = _data(self.rank, self.x.size, self.x.dtype)
        if self.out is not self.x:
            self.out[...] = 0

    def quiet(self) -> None:
        """Write zeros if repeated sums in place would overflow."""
        if self.collective.reduces and self.in_place:
            self.x[...] = 0

    def writer(self) -> Callable[[], object] | None:
        """Return a function that writes the input of this rank again, from other memory; None: it has no input."""
        if not self.x.size or not self.gives:
            return None
        return partial(np.copyto, self.x, _data(self.rank, self.x.size, self.x.dtype))

    @property
    def gives(self) -> bool:
        """Whether this rank has an input."""
        return self.rank == 0 or self.collective.name not in ("broadcast", "scatter")

    @property
    def gets(self) -> bool:
        """Whether this rank has a result."""
        return self.rank == 0 or self.collective.name not in ("reduce", "gather")

    def moved(self) -> Array:
        """Return the larger of the arrays that this rank gives and gets: it has to be read or written at least once."""
        return max((x for x, there in ((self.x, self.gives), (self.out, self.gets)) if there), key=lambda x: x.nbytes)

    def wrong(self) -> str:
        """Compare the result with the expected one; return "" or a text about the difference."""
        expected = self.expected()
        if expected is None:
            return ""
        if self.out.dtype.kind in "iu":  # sums of very many ranks wrap around in eight bits
            expected = expected.astype(np.int64).astype(self.out.dtype).astype(np.float64)
        found = self.out.astype(np.float64)
        bad = np.flatnonzero(~(np.abs(found - expected) <= self.tolerance() * np.abs(expected)))  # a NaN is bad, too
        if not len(bad):
            return ""
        first = int(bad[0])
        return (
            f"rank {self.rank} has {found[first]:g} instead of {expected[first]:g} at element {first} "
            f"({len(bad)} of {found.size} are wrong)"
        )

    def tolerance(self) -> float:
        """Return the largest relative error of a sum over the ranks in this dtype; sums of few ranks are exact."""
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}.get(self.x.dtype.name)
        if digits is None or (PERIOD + KINDS) * self.ranks < 2**digits:
            return 0.0
        return self.ranks * 2.0**-digits

    def expected(self) -> NDArray[np.float64] | None:
        """Return the expected `out`; None if it is undefined, as on ranks other than the root."""
        n, rank, size = self.out.size, self.rank, self.ranks
        part = self.x.size // size if self.collective.parts else 0
        match self.collective.name:
            case "allreduce":
                return _sum(size, n)
            case "reduce":
                return _sum(size, n) if rank == 0 else None
            case "scan":
                return _sum(rank + 1, n)
            case "exscan":
                return _sum(rank, n) if rank else None
            case "broadcast":
                return _data(0, n)
            case "sendrecv":
                return _data((rank - 1) % size, n)
            case "reducescatter":
                return _sum(size, self.x.size)[rank * n : (rank + 1) * n]
            case "allgather" | "gather":
                each = self.x.size
                return None if self.collective.name == "gather" and rank else _concatenated(size, 0, each)
            case "alltoall":
                return _concatenated(size, rank * part, part)
            case "scatter":
                return _data(0, n * size)[rank * n : (rank + 1) * n]
        return None


def _data(rank: int, count: int, dtype: Any = np.float64) -> Array:
    return (np.arange(count) % PERIOD + rank % KINDS).astype(dtype)


def _sum(ranks: int, count: int) -> NDArray[np.float64]:
    """Return the sum of the data of the first ranks."""
    kinds = sum(rank % KINDS for rank in range(ranks))
    return ranks * (np.arange(count) % PERIOD).astype(np.float64) + kinds


def _concatenated(ranks: int, first: int, count: int) -> NDArray[np.float64]:
    """Return a piece of the data of each rank."""
    piece = ((np.arange(count) + first) % PERIOD).astype(np.float64)
    return np.concatenate([piece + rank % KINDS for rank in range(ranks)])


def task(name: str, nbytes: int, dtype: Any, rank: int, ranks: int, in_place: bool = False) -> Task:
    """Make the arrays of a collective whose size is the nearest to `nbytes` that the ranks can share.

    :param in_place: the result replaces the input, where the collective has the choice
    """
    collective, dtype = COLLECTIVES[name], np.dtype(dtype)
    whole = max(1, nbytes // dtype.itemsize) if name != "barrier" else 0
    if collective.parts:
        whole = max(1, whole // ranks) * ranks
    each = whole // ranks
    given, result = {
        "allgather": (each, whole),
        "gather": (each, whole),
        "reducescatter": (whole, each),
        "scatter": (whole, each),
    }.get(name, (whole, whole))
    x = np.zeros(given, dtype)
    out = x if name == "broadcast" or (in_place and collective.places) else np.zeros(result, dtype)
    return Task(collective, x, out, rank, ranks)


def bandwidths(name: str, nbytes: int, ranks: int, seconds: float) -> tuple[float, float]:
    """Give algbw and busbw, in bytes per second."""
    algbw = nbytes / seconds
    return algbw, algbw * COLLECTIVES[name].factor(ranks)
