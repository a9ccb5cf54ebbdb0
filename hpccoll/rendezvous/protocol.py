# SPDX-License-Identifier: Apache-2.0
"""What every rendezvous does, and how its ranks agree that a step has succeeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from hpccoll import errors
from hpccoll.compared import Compared, from_list
from hpccoll.rendezvous import codec

__all__ = ["ByAllgather", "Machine", "Rendezvous", "agreed", "raise_first"]

T = TypeVar("T")
Machine = int | str
"""The name of a machine: equal on ranks that can share memory."""


class Rendezvous(Protocol):
    """The ranks that want to become a World."""

    rank: int
    """The number of this rank, from 0."""
    size: int
    """The number of ranks."""
    one_process: bool
    """The ranks are threads of one process."""

    def allgather(self, value: T) -> list[T]:
        """Exchange a small value; all ranks call this together.

        :param value: what JSON can hold: None, a bool, a number, a text, or lists and dicts of these; the values
            of all ranks are of one type
        :returns: the values of all ranks, in their order
        :raises StartError: ranks are missing
        """
        ...

    def compare(self, value: T) -> Compared[T]:
        """Exchange a value that few ranks, or none, have differently; all ranks call this together.

        Its cost does not grow with the number of ranks where all have the same, and else with the number of different
        values, beside a few bytes per rank.

        :param value: see `allgather`
        :raises StartError: ranks are missing
        """
        ...

    def numbers(self, values: Sequence[int]) -> np.ndarray:
        """Exchange a few whole numbers; all ranks call this together.

        :param values: each fits into 64 bits; as many on all ranks
        :returns: a row per rank, int64
        :raises StartError: ranks are missing
        """
        ...

    def machine(self) -> Machine:
        """Name this rank's machine; all ranks call this together.

        :returns: equal values on ranks that can share memory
        """
        ...

    def describe(self) -> str:
        """Say how the ranks met, in a few words for the line at the start; "" where that needs no words."""
        ...

    def give_up(self) -> None:
        """End the other ranks as well, where they would wait for this one: the World is broken and the process ends."""

    def free(self) -> None:
        """Give back what the rendezvous holds; all ranks call this together, after the World has ended well."""


class ByAllgather:
    """What a rendezvous of few ranks can do by its `allgather`."""

    def compare(self: Rendezvous, value: T) -> Compared[T]:
        """See Rendezvous."""
        return from_list(self.allgather(value), codec.encode)

    def numbers(self: Rendezvous, values: Sequence[int]) -> np.ndarray:
        """See Rendezvous."""
        return np.array(self.allgather([int(value) for value in values]), np.int64)


def agreed(compare: Callable[[str], Compared[str]], action: Callable[[], T]) -> T:
    """Do a step that may fail on some ranks, and fail on all of them if it does; all ranks call this together.

    :param compare: exchanges a text between the ranks
    :param action: the step of this rank
    :returns: what `action` returned
    :raises StartError: `action` failed on some rank; the text names the rank and the reason
    """
    results, text = [], ""
    try:
        results.append(action())
    except (errors.HpccollError, RuntimeError, MemoryError, OSError) as error:
        text = str(error) or type(error).__name__
    raise_first(compare(text))
    return results[0]


def raise_first(texts: Compared[str]) -> None:
    """Raise what went wrong on the first rank where something did.

    :param texts: what went wrong on each rank, or ""
    :raises StartError: one of the texts is not empty
    """
    for i, text in enumerate(texts.values):
        if text:
            raise errors.StartError(f"rank {texts.first(i)}: {text}")
