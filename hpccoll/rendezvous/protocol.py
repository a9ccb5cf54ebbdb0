# SPDX-License-Identifier: Apache-2.0
"""The interface of every rendezvous, and the agreement of its ranks that a step has succeeded."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from hpccoll import errors
from hpccoll.compared import Compared, from_list
from hpccoll.rendezvous import codec

__all__ = ["ByAllgather", "Machine", "Rendezvous", "agreed", "gather_bytes", "raise_first"]

T = TypeVar("T")
Machine = int | str
"""The name of a machine: equal on ranks that can share memory."""
NAMES_A_RANK = re.compile(r"rank \d+: ")


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

        :param value: a JSON value: None, a bool, a number, a str, or lists and dicts of these; the values
            of all ranks are of one type
        :returns: the values of all ranks, in their order
        :raises StartError: ranks are missing
        """
        ...

    def compare(self, value: T) -> Compared[T]:
        """Exchange a value that is equal on most or all ranks; all ranks call this together.

        If all values are equal, its cost does not depend on the number of ranks. Else it grows with the number of
        different values, and by a few bytes per rank.

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
        """Describe the rendezvous in a few words for the line at the start; "" omits it."""
        ...

    def give_up(self) -> None:
        """End the other ranks if they would wait for this one: its World is broken and its process ends."""

    def free(self) -> None:
        """Free the resources; all ranks call this together, after the end of a World without failure."""


class ByAllgather:
    """The methods that a rendezvous of few ranks implements by its `allgather`, and those with nothing to do."""

    def compare(self: Rendezvous, value: T) -> Compared[T]:
        """See Rendezvous."""
        return from_list(self.allgather(value), codec.encode)

    def numbers(self: Rendezvous, values: Sequence[int]) -> np.ndarray:
        """See Rendezvous."""
        return np.array(self.allgather([int(value) for value in values]), np.int64)

    def machine(self) -> Machine:
        """See Rendezvous: one process is on one machine."""
        return 0

    def describe(self) -> str:
        """See Rendezvous."""
        return ""

    def give_up(self) -> None:
        """See Rendezvous: the other ranks see that this process has ended, and do not wait for it."""

    def free(self) -> None:
        """See Rendezvous: connections and stores are the process's, or their maker's."""


def agreed(compare: Callable[[str], Compared[str]], action: Callable[[], T]) -> T:
    """Run a step that may fail on some ranks, and raise on all of them if it does; all ranks call this together.

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
    said = compare(text)
    if said.alike and NAMES_A_RANK.match(text):  # the step has an exchange of its own, which has found the rank
        raise errors.StartError(text)
    raise_first(said)
    return results[0]


def gather_bytes(rendezvous: Rendezvous) -> Callable[[str, bytes], bytes]:
    """Make an allgather of bytes, as many on all ranks, for what C agrees on (rendezvous/exchange.h)."""

    def gather(_: str, mine: bytes) -> bytes:
        seen = rendezvous.compare(mine.hex()).map(bytes.fromhex)
        return b"".join(seen)

    return gather


def raise_first(texts: Compared[str]) -> None:
    """Raise the first rank's error, if any rank has one.

    :param texts: the error of each rank, or ""
    :raises StartError: one of the texts is not empty
    """
    for i, text in enumerate(texts.values):
        if text:
            raise errors.StartError(f"rank {texts.first(i)}: {text}")
