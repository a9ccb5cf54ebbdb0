# SPDX-License-Identifier: Apache-2.0
"""The handles of a front end's asynchronous calls."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from hpccoll import errors

__all__ = ["HandleNumber", "Waitable", "poll", "synchronize", "wait_for_all"]

_numbers = itertools.count()


class Waitable(Protocol):
    """Something in progress: a request of the library, or a procedure of several requests."""

    @property
    def number(self) -> int:
        """The entry of the set's log in which the ranks agreed on the (first) request; known when it is finished.

        Requests that were in flight together may have the same one.
        0: they agreed without the log, as they may where the request has no name and its caller waits at once.
        """

    def done(self) -> bool:
        """Whether it is finished, successfully or not."""

    def wait(self) -> Any:
        """Block until it is finished; return its result or raise its error."""


class HandleNumber(int):
    """A number, as in Horovod, that owns its operation; so no table keeps operations without a waiter alive."""

    number: int = 0
    """See Waitable."""
    _requests: Sequence[Waitable]
    _finish: Callable[[list[Any]], Any] | None
    _result: Any

    def __new__(cls, requests: Sequence[Waitable], finish: Callable[[list[Any]], Any]) -> Self:
        """Represent all of `requests`; `finish` makes the result from the list of their results."""
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
            self._result = self._finish(wait_for_all(self._requests))
            self.number = self._requests[0].number if self._requests else 0
            self._finish, self._requests = None, ()
        return self._result


def wait_for_all(requests: Sequence[Waitable]) -> list[Any]:
    """Wait for all requests, even after a failure, so that all ranks have waited for the same requests.

    :returns: their results
    :raises HpccollError: the first error
    """
    results, failed = [], None
    for request in requests:
        try:
            results.append(request.wait())
        except errors.HpccollError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return results


def poll(handle: int) -> bool:
    """Say whether an asynchronous operation is finished, so that synchronize() would not block.

    :param handle: the result of the asynchronous call
    :returns: True also if the operation has failed
    :raises InvalidArgumentError: (a ValueError) `handle` is not what an asynchronous call has returned
    """
    return _checked(handle).done()


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation. A second call returns the same result again.

    :param handle: what the asynchronous call has returned
    :returns: the result: a tensor; a list of tensors for a grouped operation; for alltoall the received rows, and their
        number from each rank. A tensor in device memory is ready for the current stream: the host need not wait
    :raises HorovodInternalError: a rank or the transport failed; a new World may work
    :raises MismatchError: the ranks made different requests under one name
    :raises InvalidArgumentError: (a ValueError) `handle` is not what an asynchronous call has returned
    """
    return _checked(handle).wait()


def _checked(handle: int) -> HandleNumber:
    if not isinstance(handle, HandleNumber):
        raise errors.InvalidArgumentError(f"{handle!r} is no handle of an asynchronous operation")
    return handle
