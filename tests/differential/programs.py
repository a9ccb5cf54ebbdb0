# SPDX-License-Identifier: Apache-2.0
"""The programs of the differential tests, as descriptions.

A program is a list of calls. Every rank knows the whole description, so a call has the inputs of all ranks. Every front
end runs the same description in every mode (modes_*.py); oracle.py has the expected results.
"""

import random
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from differential.operations import NORMALIZE, OF_OWN_ROWS, OPERATIONS, PAIRS, REDUCES, ROOTED, SPLIT, Array

REDUCTIONS = ("SUM", "AVERAGE", "MIN", "MAX", "PRODUCT")
DTYPES = ("int32", "int64", "float16", "float32", "float64")
BYTES = ("datetime64[s]", ">i4", ">f8", "S4", "U3", "i4,f8")
"""Types that move, and of which there are no sums."""
GROUPED = ("allreduce", "allgather", "reducescatter", "reduce", "scan", "exscan")
LAYOUTS = ("C", "Fortran", "Fortran on rank 0", "strided", "reversed")
MISUSES = {"a reduction as the root": ROOTED, "no reduction": REDUCES, "overlapping messages": ("sendrecv",)}
"""Arguments that are an error on every rank, and their operations."""


@dataclass(frozen=True)
class Abilities:
    """The features that programs of a mode may have."""

    operations: tuple[str, ...] = OPERATIONS
    dtypes: tuple[str, ...] = DTYPES
    grouped: tuple[str, ...] = ()
    """Operations that take several arrays."""
    sets: bool = True
    """Some of the ranks may make a call."""
    empty: bool = True
    """A rank may give no row."""
    narrow: bool = True
    """Rows that are counted may have no elements."""
    derives: str = ""
    """The results are gradients, by this convention (oracle.gradients)."""
    twice: bool = False
    """They are gradients of gradients."""
    reductions: tuple[str, ...] = REDUCTIONS
    scaled: bool = True
    """Calls may have factors."""
    large: bool = False
    """Means may be of values close to the largest that the dtype has."""
    disagrees: bool = True
    """One rank may make another call."""
    misuses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """One call, as the ranks make it."""

    operation: str
    dtype: str = "float32"
    rows: int = 2
    trailing: tuple[int, ...] | None = (3,)
    """The dimensions behind the rows. None: the array has no dimensions."""
    reduction: str = "SUM"
    root: int = 0
    """Among the members."""
    factors: tuple[float, float] = (1.0, 1.0)
    """prescale and postscale."""
    name: str | None = None
    layout: str = "C"
    """The layout of the array; strided: every second element of a larger one, dimensions in the other order."""
    large: bool = False
    seed: int = 0
    members: tuple[int, ...] | None = None
    """The ranks that make the call, in a process set. None: all."""
    group: int | None = None
    """Consecutive calls with the same number are one call with several arrays, which has the name of the first."""
    misuse: str | None = None
    """An error in the arguments, on every rank."""

    def __str__(self) -> str:
        given = [f"{key}={value!r}" for key, value in vars(self).items() if value != getattr(Call, key, None)]
        return f"{self.operation}({', '.join(given[1:])})"

    def own_rows(self, rank: int, size: int) -> int:
        """Return the number of rows of this rank's input."""
        if self.operation in (*OF_OWN_ROWS, NORMALIZE):
            return self.rows + rank
        return sum(self.splits(rank, size)) if self.operation in SPLIT else self.rows

    def splits(self, rank: int, size: int) -> list[int]:
        """Return the numbers of rows that a rank sends to each rank, as in an alltoall."""
        return [(self.rows + rank + 2 * to) % 4 for to in range(size)]

    def shape(self, rank: int, size: int) -> tuple[int, ...]:
        """Return the shape of this rank's input."""
        return () if self.trailing is None else (self.own_rows(rank, size), *self.trailing)

    def values(self, rank: int, size: int, turn: int = 0) -> Array:
        """Return this rank's values in the given turn: small numbers, whose sums and products every dtype has."""
        top = 3 if self.reduction == "PRODUCT" else 9
        shape = self.shape(rank, size)
        numbers = np.asarray(np.random.default_rng([self.seed, rank, turn]).integers(1, top, shape))
        if self.large:
            return np.asarray(numbers * (np.finfo(self.dtype).max / 10), self.dtype)
        if self.operation == NORMALIZE:
            numbers += 1000 + 8 * rank  # a mean that is large beside the deviations, which are not 0
        if "," not in self.dtype:
            return numbers.astype(self.dtype)
        both = np.zeros(shape, self.dtype)
        both["f0"], both["f1"] = numbers, rank if self.dtype == PAIRS else numbers / 2
        return both

    def given(self, rank: int, size: int, turn: int = 0) -> Array:
        """Return the same values, in the layout of the call."""
        values = self.values(rank, size, turn)
        if self.layout == "C" or not values.ndim or (self.layout == "Fortran on rank 0" and rank):
            return values
        if self.layout.startswith("Fortran"):
            return np.asfortranarray(values)
        if self.layout == "reversed":
            return np.ascontiguousarray(values[::-1])[::-1]
        large = np.zeros([2 * n for n in values.T.shape], values.dtype)
        every_second = (slice(None, None, 2),) * values.ndim
        large[every_second] = values.T
        return large[every_second].T


@dataclass(frozen=True)
class Unit:
    """A call, or a group of calls that a rank makes together."""

    places: tuple[int, ...]
    """The positions of the calls in the program."""
    calls: tuple[Call, ...]
    """Without `members`: rank and size are those in the set."""
    members: tuple[int, ...] | None
    rank: int
    size: int

    @property
    def is_group(self) -> bool:
        return self.calls[0].group is not None


@dataclass(frozen=True)
class Program:
    """Calls, and how the ranks make them."""

    calls: tuple[Call, ...]
    orders: int | None = None
    """A seed: each rank makes the calls with a name in another order. None: in the same order."""
    turns: int = 1
    """The number of times that the calls are made, with other values; in a compiled program by the same function."""
    differs: tuple[int, Call] | None = None
    """A rank that makes another last call than the others; all ranks must get an error."""

    def __str__(self) -> str:
        lines = [f"orders={self.orders}, turns={self.turns}:", *map(str, self.calls)]
        return "\n  ".join([*lines, *([f"but rank {self.differs[0]}: {self.differs[1]}"] if self.differs else [])])

    def of(self, rank: int) -> "Program":
        """Return the program of this rank."""
        if self.differs is None or self.differs[0] != rank:
            return self
        return replace(self, calls=(*self.calls[:-1], self.differs[1]))

    def units(self, rank: int, size: int) -> list[Unit]:
        """Return the units of this rank, in the order of the description."""
        units = []
        groups = groupby(enumerate(self.calls), lambda each: each[0] if each[1].group is None else -1 - each[1].group)
        for _, several in groups:
            places, calls = zip(*several, strict=True)
            members = calls[0].members
            if members is None or rank in members:
                own, many = (rank, size) if members is None else (members.index(rank), len(members))
                stripped = tuple(replace(call, members=None) for call in calls)
                units.append(Unit(places, stripped, members, own, many))
        return units

    def ordered(self, rank: int, size: int) -> list[Unit]:
        """Return them in the order in which this rank makes the calls; those without a name keep their place."""
        units = self.units(rank, size)
        if self.orders is None:
            return units
        named = [i for i, unit in enumerate(units) if unit.calls[0].name is not None]
        shuffled = named.copy()
        random.Random(f"{self.orders} {rank}").shuffle(shuffled)
        moved = dict(zip(named, shuffled, strict=True))
        return [units[moved.get(i, i)] for i in range(len(units))]
