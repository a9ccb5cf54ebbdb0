# SPDX-License-Identifier: Apache-2.0
"""The computed gradients and the pending buckets of a step. It starts nothing itself.

computed(gradient), backward_passes_per_step times --> a complete bucket, which the caller starts
missing()                                          --> the other buckets, so that every rank starts the same ones
started(bucket, pending), take_pending()           --> the buckets in flight, until the caller has finished them
"""

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from hpccoll import errors
from hpccoll.frontend.buckets import Bucket

__all__ = ["Reducer", "check_passes"]

Pending = TypeVar("Pending")
"""What the caller remembers of a bucket in flight."""


def check_passes(passes: int) -> None:
    """Check a number of backward passes per step.

    :raises InvalidArgumentError: it is no integer of 1 or more
    """
    if not isinstance(passes, int) or passes < 1:
        raise errors.InvalidArgumentError(f"backward_passes_per_step is {passes!r}, not 1 or more")


class Reducer(Generic[Pending]):
    """Counts gradients, which it knows by their numbers, and returns the buckets that the caller has to start."""

    def __init__(self, buckets: Iterable[Bucket], passes: int) -> None:
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[int, Bucket] = {}  # by the gradient's number
        self._left: dict[int, int] = {}  # backward passes until a gradient is complete
        self._open: dict[Bucket, int] = {}  # gradients of a bucket that are not complete
        self._pending: dict[Bucket, Pending] = {}
        self._lock = threading.Lock()  # a framework may compute gradients in one thread per device
        self.active = False
        """Whether a gradient was computed since the last reset()."""
        self.set_passes(passes)
        self.add(buckets)

    @property
    def passes(self) -> int:
        """Backward passes of a step."""
        return self._passes

    def set_passes(self, passes: int) -> None:
        """Start over with this number of backward passes per step."""
        check_passes(passes)
        self._refuse_while_active()
        self._passes = passes
        self.reset()

    def add(self, buckets: Iterable[Bucket]) -> None:
        """Count the gradients of these buckets, too, from now on."""
        self._refuse_while_active()
        for bucket in buckets:
            self._bucket_of.update(dict.fromkeys(bucket.members, bucket))
            self._buckets.append(bucket)
        self.reset()

    def computed(self, member: int) -> Bucket | None:
        """Count a backward pass of this gradient.

        :returns: the gradient's bucket if it is complete now: the caller must start it and call started()
        :raises AssertionError: the gradient was complete already
        """
        with self._lock:
            left = self._left[member]
            if left == 0:
                raise AssertionError(
                    "Gradients were computed more than backward_passes_per_step times before call to step(). "
                    "Increase backward_passes_per_step to accumulate gradients locally."
                )
            self.active = True
            self._left[member] = left - 1
            if left > 1:
                return None
            bucket = self._bucket_of[member]
            self._open[bucket] -= 1
            return None if self._open[bucket] else bucket

    def started(self, bucket: Bucket, pending: Pending) -> None:
        """Remember that a bucket is in flight."""
        self._pending[bucket] = pending

    def missing(self, wanted: Callable[[int], bool]) -> list[Bucket]:
        """Return the buckets that nobody has started, in order.

        :param wanted: whether a gradient takes part although it was not computed
        """
        return [b for b in self._buckets if b not in self._pending and any(map(wanted, b.members))]

    def pending(self) -> list[Pending]:
        """Return the buckets in flight, in the order of their start."""
        return list(self._pending.values())

    def passes_left(self, member: int) -> int:
        """Return the remaining backward passes of a gradient."""
        return self._left[member]

    def take_pending(self) -> list[Pending]:
        """Return the buckets in flight, in the order of their start, and forget them."""
        pending, self._pending = self._pending, {}
        return list(pending.values())

    def reset(self) -> None:
        """Begin a new step."""
        self.active = False
        self._pending = {}
        self._left = dict.fromkeys(self._bucket_of, self._passes)
        self._open = {bucket: len(bucket.members) for bucket in self._buckets}

    def _refuse_while_active(self) -> None:
        if self.active:
            raise AssertionError("gradients are being reduced: call step() or synchronize() first")
