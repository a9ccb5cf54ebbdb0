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
from hpccoll.gradients.plan import Item

__all__ = ["Finish", "Reducer", "check_passes"]

Finish = Callable[[], Any]
"""Waits for what was started and puts the result where it belongs. It may return another Finish: one more round."""


def check_passes(passes: int) -> None:
    """Raise InvalidArgumentError if there cannot be so many backward passes a step."""
    if not isinstance(passes, int) or passes < 1:
        raise errors.InvalidArgumentError(f"backward_passes_per_step is {passes!r}, not 1 or more")


class Reducer:
    """Counts what is computed, starts what is complete, and finishes what was started.

    It knows gradients by their numbers alone. `start` begins the reduction of an item's gradients, which must be
    left alone until the Finish that it returns has been called.
    """

    def __init__(self, items: Sequence[Item], passes: int, start: Callable[[Item], Finish]) -> None:
        self._start = start
        self._items: list[Item] = []
        self._item_of: dict[int, Item] = {}
        self._left: dict[int, int] = {}  # backward passes until a gradient is complete
        self._open: dict[Item, int] = {}  # gradients of an item that are not complete
        self._in_flight: dict[Item, Finish] = {}
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
            self._items.append(item)
            self._item_of.update(dict.fromkeys(item.members, item))
        self._reset()

    def computed(self, member: int) -> None:
        """Count a backward pass of this gradient; start its item if that was the last."""
        with self._lock:
            if self._left[member] == 0:
                raise AssertionError(
                    "Gradients were computed more than backward_passes_per_step times before call to step(). "
                    "Increase backward_passes_per_step to accumulate gradients locally."
                )
            self.pending = True
            self._left[member] -= 1
            if self._left[member]:
                return
            item = self._item_of[member]
            self._open[item] -= 1
            if self._open[item]:
                return
        self._in_flight[item] = self._start(item)

    def synchronize(self, wanted: Callable[[int], bool]) -> None:
        """Start what is missing, then finish everything.

        :param wanted: whether a gradient that was not computed takes part all the same
        :raises HpccollError: the first failure, after everything else is finished
        """
        try:
            for item in self._items:
                if item not in self._in_flight and any(map(wanted, item.members)):
                    self._in_flight[item] = self._start(item)
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
            again = {}
            for item, finish in self._in_flight.items():
                try:
                    more = finish()
                except (errors.HpccollError, AssertionError) as error:
                    failure = failure or error
                else:
                    if more is not None:
                        again[item] = more
            self._in_flight = again
        if failure is not None:
            raise failure

    def _refuse_while_pending(self) -> None:
        if self.pending:
            raise AssertionError("gradients are being reduced: call step() or synchronize() first")

    def _reset(self) -> None:
        self.pending = False
        self._in_flight = {}
        self._left = dict.fromkeys(self._item_of, self._passes)
        self._open = {item: len(item.members) for item in self._items}
