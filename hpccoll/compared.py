# SPDX-License-Identifier: Apache-2.0
"""The values of all ranks for one subject: each different value once, and the ranks that have it.

Ranks in a collective step mostly have equal values. So they compare digests, whose cost does not grow with the number
of ranks, and exchange values only if the digests differ, each value once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["NOBODY", "Compared", "all_equal", "digest", "extremes", "from_list", "index"]

T = TypeVar("T")
U = TypeVar("U", bound=Hashable)
NOBODY = -1
"""The index of a rank without a value, because it has joined."""


@dataclass(frozen=True)
class Compared(Generic[T]):
    """The values of the ranks."""

    values: list[T]
    """Each different value once, in the order of the lowest ranks that have them."""
    size: int
    """The number of ranks."""
    of: np.ndarray | None = None
    """The index in `values` of each rank, or NOBODY; None: all ranks have the same value."""

    @property
    def alike(self) -> bool:
        """Whether all ranks have the same value."""
        return self.of is None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rank: int) -> T:
        return self.values[0 if self.of is None else self.of[rank]]

    def __iter__(self) -> Iterator[T]:
        """Yield the value of each rank that has one, in order of the ranks."""
        if self.of is None:
            return iter([self.values[0]] * self.size)
        return iter([self.values[i] for i in self.of.tolist() if i != NOBODY])

    def ranks(self, i: int) -> list[int]:
        """List the ranks that have `values[i]`, in their order."""
        return list(range(self.size)) if self.of is None else np.flatnonzero(self.of == i).tolist()

    def first(self, i: int) -> int:
        """Return the lowest rank that has `values[i]`."""
        return 0 if self.of is None else int(np.argmax(self.of == i))

    def like(self, rank: int) -> list[int]:
        """List the ranks that have the value of `rank`, in their order."""
        return self.ranks(0 if self.of is None else int(self.of[rank]))

    def map(self, change: Callable[[T], U]) -> Compared[U]:
        """Apply a function to the values; values that become equal are merged."""
        numbers: dict[U, int] = {}
        lookup = [numbers.setdefault(change(value), len(numbers)) for value in self.values]
        if self.of is None or (len(numbers) == 1 and NOBODY not in self.of):
            return Compared(list(numbers), self.size)
        return Compared(list(numbers), self.size, np.array([*lookup, NOBODY])[self.of])


def from_list(values: Iterable[T], key: Callable[[T], Hashable] = lambda value: value) -> Compared[T]:
    """Compare the values of all ranks, on a rank that has all of them.

    :param values: in order of the ranks
    :param key: equal for values that are equal
    """
    numbers: dict[Hashable, int] = {}
    different: list[T] = []
    of = []
    for value in values:
        i = numbers.setdefault(key(value), len(numbers))
        if i == len(different):
            different.append(value)
        of.append(i)
    return Compared(different, len(of), np.array(of) if len(different) > 1 else None)


# ---- over a reduction ------------------------------------------------------------------------------------


def digest(data: bytes) -> np.ndarray:
    """Give 128 bits of a value's bytes, as two int64: different values differ in them."""
    return np.frombuffer(hashlib.blake2b(data, digest_size=16).digest(), np.int64)


def extremes(own: np.ndarray) -> np.ndarray:
    """Return the numbers whose MIN over all ranks tells whether all ranks have the same `own`; see all_equal()."""
    return np.concatenate([own, ~own])


def all_equal(least: np.ndarray) -> bool:
    """Return whether all ranks have the same numbers, by the MIN of their `extremes`."""
    half = len(least) // 2
    return bool((least[:half] == ~least[half:]).all())


def index(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the different values by one number of each rank.

    :param digests: 1-d
    :returns: the lowest rank of each value, in order of these ranks; the index of each rank in them
    """
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place: np.ndarray[Any, Any] = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[inverse]
