# SPDX-License-Identifier: Apache-2.0
"""Names for calls that the caller did not name and that match by their order.

A series of calls cycles through a fixed number of names, so the ranks need not agree on new names all the time.
"""

import collections
import contextlib
import itertools
from collections.abc import Callable, Mapping

from hpccoll import errors
from hpccoll.collectives import Handle

__all__ = ["SequenceNames"]


class SequenceNames:
    """The names of series of calls, and the requests in flight under them."""

    def __init__(self, names: int) -> None:
        """:param names: how many names each series cycles through."""
        self._names = names
        self._calls: dict[str, itertools.count[int]] = collections.defaultdict(itertools.count)
        self._in_flight: dict[str, Handle] = {}

    def next(self, series: str) -> str:
        """Return the next name of a series of calls."""
        return f"{series} {next(self._calls[series]) % self._names}"

    def begin(self, name: str, submit: Callable[[str], Handle], timeout: float) -> Handle:
        """Submit a request once the previous request of the same name is done.

        :param timeout: seconds to wait for the previous request
        :raises TimeoutError: the previous request is not done by then
        """
        before = self._in_flight.get(name)
        if before is not None and not before.done():
            with contextlib.suppress(errors.HpccollError):  # raised in the thread that waits for that request
                before.wait(timeout)
        handle = self._in_flight[name] = submit(name)
        return handle

    def settle(self, handles: Mapping[str, Handle]) -> None:
        """Forget requests that are done.

        :param handles: each request under its name
        """
        for name, handle in handles.items():
            if self._in_flight.get(name) is handle:
                del self._in_flight[name]
