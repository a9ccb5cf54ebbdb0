# SPDX-License-Identifier: Apache-2.0
"""Names for calls that have none and match by their order: so many of them, in turn, so that they come again."""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Callable, Mapping

from hpccoll import errors
from hpccoll.collectives import Handle

__all__ = ["Turns"]


class Turns:
    """What was begun under names in turn, and is not settled."""

    def __init__(self, names: int) -> None:
        """Let a series of calls have so many names."""
        self._names = names
        self._calls: dict[str, itertools.count[int]] = collections.defaultdict(itertools.count)
        self._in_flight: dict[str, Handle] = {}

    def next(self, series: str) -> str:
        """Give the next name of a series of calls."""
        return f"{series} {next(self._calls[series]) % self._names}"

    def begin(self, name: str, submit: Callable[[str], Handle], timeout: float) -> Handle:
        """Submit a request, when what had its name is done; TimeoutError after so many seconds."""
        before = self._in_flight.get(name)
        if before is not None and not before.done():
            with contextlib.suppress(errors.HpccollError):  # told to whoever waits for that one
                before.wait(timeout)
        handle = self._in_flight[name] = submit(name)
        return handle

    def settle(self, handles: Mapping[str, Handle]) -> None:
        """Forget requests that are done, by name."""
        for name, handle in handles.items():
            if self._in_flight.get(name) is handle:
                del self._in_flight[name]
