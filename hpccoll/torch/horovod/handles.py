# SPDX-License-Identifier: Apache-2.0
"""What an asynchronous call returns, and how to wait for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol, Self

from hpccoll import errors

__all__ = ["Handle", "Request", "poll", "synchronize"]

_numbers = itertools.count()


class Request(Protocol):
    """Something under way: a request of the library, or a procedure of several."""

    def done(self) -> bool:
        """Whether it is finished, well or not."""

    def wait(self) -> Any:
        """Block until it is finished; its result, or its error."""


class Handle(int):
    """A number, as in Horovod, that knows what it stands for: no table holds what nobody waits for."""

    _requests: list[Request]
    _finish: Callable[[list[Any]], Any] | None
    _result: Any

    def __new__(cls, requests: list[Request], finish: Callable[[list[Any]], Any]) -> Self:
        """Wait for all of `requests`; the result is what `finish` makes of theirs."""
        handle = super().__new__(cls, next(_numbers))
        handle._requests = requests
        handle._finish = finish
        return handle

    def done(self) -> bool:
        """See poll()."""
        return all(request.done() for request in self._requests)

    def wait(self) -> Any:
        """See synchronize()."""
        if self._finish is not None:
            self._result = self._finish([request.wait() for request in self._requests])
            self._finish, self._requests = None, []
        return self._result


def poll(handle: int) -> bool:
    """Whether the operation is finished, so that synchronize() would not block."""
    return _known(handle).done()


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation.

    :param handle: what the asynchronous call has returned
    :returns: the result: a tensor, a list of them (grouped), or the output and the received splits (alltoall)
    :raises HorovodInternalError: a rank or a transport is gone; a new World may work
    :raises MismatchError: the ranks asked for different things under one name
    """
    return _known(handle).wait()


def _known(handle: int) -> Handle:
    if not isinstance(handle, Handle):
        raise errors.InvalidArgumentError(f"{handle!r} is no handle of an asynchronous operation")
    return handle
