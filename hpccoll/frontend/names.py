# SPDX-License-Identifier: Apache-2.0
"""Names of requests: operation and name, so that a broadcast and an allreduce of one tensor do not collide.

A request whose tensor has no name has none either: hpccoll matches such requests by their order, also after a join.
"""

import re
import weakref
from typing import Protocol

from hpccoll import errors
from hpccoll.worlds import World

__all__ = ["InFlight", "member", "members", "occurrence", "of_call", "part", "request"]

_TOLD_APART = re.compile(r" \((\d+|in .*)\)\Z")
"""How a name ends that was made different from an equal one; kernels of compiled programs write the second form."""


def request(operation: str, name: str | None) -> str | None:
    """Return the name of a request: "allreduce.weights". An empty name is no name, as in Horovod."""
    return f"{operation}.{text}" if (text := _text(name)) else None


def member(name: str | None, index: int, count: int) -> str | None:
    """Return the name of one tensor of a group that is several requests: "weights_1of3"."""
    return f"{text}_{index + 1}of{count}" if (text := _text(name)) else None


def members(name: str | None, count: int) -> list[str | None]:
    """Return the names of all tensors of a group that is several requests."""
    return [member(name, i, count) for i in range(count)]


def part(name: str | None, what: str) -> str | None:
    """Return the name of one of the requests of an operation: "weights.gradient"."""
    return f"{text}.{what}" if (text := _text(name)) else None


def of_call(name: str | None, number: int) -> str:
    """Return the name of a call that is done, for the names of its derivatives.

    Calls without a name match by their order. Their derivatives run in the order of each rank's tape, which may differ
    between ranks; matched by order, they would be added to derivatives of other calls. So they are named after the
    entry of the log in which the ranks agreed on the call. No rank could count the calls itself: those that the others
    make while it has joined are not among its own. Calls that are recorded are blocking, so no two have one entry.

    :param number: of that entry, as handles.Waitable has it; begin a call without a name by waits=False, so that it has
        one
    """
    return _text(name) or f"eager call {number}"


def occurrence(name: str, number: int) -> str:
    """Return the name of the first, second ... of equal names: "weights", "weights (2)".

    No two pairs of name and number have the same result. So a name that already ends in a number gets its number, too:
    "weights (2) (1)".

    :param number: from 1
    """
    return name if number == 1 and not _TOLD_APART.search(name) else f"{name} ({number})"


def _text(name: str | None) -> str | None:
    """Return the name that a program gave.

    :raises InvalidArgumentError: it is no text
    """
    if name is not None and not isinstance(name, str):
        raise errors.InvalidArgumentError(f"name is {name!r}: a name is a str, the same on all ranks")
    return name


class Request(Protocol):
    """A request in flight under a name."""

    def launched(self) -> bool:
        """Whether it has ended for the library, so that another request may use its name."""


class InFlight:
    """The requests in flight that have a name, so that a call can refuse a second one as Horovod does.

    The library finds two requests of one name, too, but only after the call has returned.
    """

    def __init__(self) -> None:
        self._requests: weakref.WeakValueDictionary[tuple[int, str], Request] = weakref.WeakValueDictionary()

    def check(self, name: str | None, world: World) -> None:
        """Raise DuplicateNameError if a request of this name is in flight in `world`."""
        if name and (earlier := self._requests.get((id(world.core), name))) and not earlier.launched():
            raise errors.DuplicateNameError(
                "a request of this name is in flight, and goes on: synchronize it first, or use another name"
            )

    def add(self, name: str | None, world: World, started: Request) -> None:
        """Remember the request of a name."""
        if name:
            self._requests[id(world.core), name] = started
