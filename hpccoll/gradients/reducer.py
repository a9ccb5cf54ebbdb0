# SPDX-License-Identifier: Apache-2.0
"""Which gradients of a step are computed, in flight, reduced.

    computed() a gradient, backward_passes_per_step times --> its item is started --> synchronize() finishes it

Gradients that some rank did not compute are started by synchronize(), so that every rank starts the same items.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hpccoll import errors
from hpccoll._core import wait_all
from hpccoll.collectives import Handle
from hpccoll.gradients.plan import Item

__all__ = ["Finish", "Flight", "Reducer", "check_passes"]

Finish = Callable[[], Any]
"""Called when all handles are done: puts the result where it belongs, or raises what went wrong. It may return another
Flight: one more round."""
Flight = tuple[Sequence[Handle], Finish]
"""An item's reduction under way: the requests that it consists of, and what comes after them."""


def check_passes(passes: int) -> None:
    """Raise InvalidArgumentError if there cannot be so many backward passes a step."""
    if not isinstance(passes, int) or passes < 1:
        raise errors.InvalidArgumentError(f"backward_passes_per_step is {passes!r}, not 1 or more")


class Reducer:
    """Counts what is computed, starts what is complete, and finishes what was started.

    It knows gradients by their numbers alone. `start` begins the reduction of an item's gradients, which must be
    left alone until its Finish has been called.
    """

    def __init__(self, items: Sequence[Item], passes: int, start: Callable[[Item], Flight]) -> None:
        self._start = start
        self._items: list[Item] = []
        self._place_of: dict[int, int] = {}  # a gradient's item among the items
        self._left: dict[int, int] = {}  # backward passes until a gradient is complete
        self._open: list[int] = []  # of each item, gradients that are not complete
        self._in_flight: dict[int, Flight] = {}  # by the item's place
        self._lock = threading.Lock()  # a framework may compute gradients in a thread a device
        self.pending = False
        """Whether anything was computed since the last synchronize()."""
        self.set_passes(passes)
        self.add(items)

    @property
    def passes(self) -> int:
        """Backward passes of a step."""
        return self._passes

    def set_passes(self, passes: int) -> None:
        """Start over with so many backward passes a step."""
        check_passes(passes)
        self._refuse_while_pending()
        self._passes = passes
        self._reset()

    def add(self, items: Iterable[Item]) -> None:
        """Reduce these, too, from now on."""
        self._refuse_while_pending()
        for item in items:
            self._place_of.update(dict.fromkeys(item.members, len(self._items)))
            self._items.append(item)
        self._reset()

    def computed(self, member: int) -> None:
        """Count a backward pass of this gradient; start its item if that was the last."""
        with self._lock:
            left = self._left[member]
            if left == 0:
                raise AssertionError(
                    "Gradients were computed more than backward_passes_per_step times before call to step(). "
                    "Increase backward_passes_per_step to accumulate gradients locally."
                )
            self.pending = True
            self._left[member] = left - 1
            if left > 1:
                return
            place = self._place_of[member]
            self._open[place] -= 1
            if self._open[place]:
                return
        self._in_flight[place] = self._start(self._items[place])

    def synchronize(self, wanted: Callable[[int], bool]) -> None:
        """Start what is missing, then finish everything.

        :param wanted: whether a gradient that was not computed takes part all the same
        :raises HpccollError: the first failure, after everything else is finished
        """
        try:
            for place, item in enumerate(self._items):
                if place not in self._in_flight and any(map(wanted, item.members)):
                    self._in_flight[place] = self._start(item)
            self._finish_all()
        finally:
            self._reset()

    def abandon(self) -> None:
        """Wait for what is in flight, whatever becomes of it, and start over."""
        try:
            self._finish_all()
        except (errors.HpccollError, AssertionError):
            pass
        finally:
            self._reset()

    def _finish_all(self) -> None:
        """Finish in rounds: all that a round starts is started before any of it is awaited, as the order differs."""
        failure: Exception | None = None
        while self._in_flight:
            wait_all([handle for handles, _ in self._in_flight.values() for handle in handles])
            again = {}
            for place, (_, finish) in self._in_flight.items():
                try:
                    more = finish()
                except (errors.HpccollError, AssertionError) as error:
                    failure = failure or error
                else:
                    if more is not None:
                        again[place] = more
            self._in_flight = again
        if failure is not None:
            raise failure

    def _refuse_while_pending(self) -> None:
        if self.pending:
            raise AssertionError("gradients are being reduced: call step() or synchronize() first")

    def _reset(self) -> None:
        self.pending = False
        self._in_flight = {}
        self._left = dict.fromkeys(self._place_of, self._passes)
        self._open = [len(item.members) for item in self._items]
