# SPDX-License-Identifier: Apache-2.0
"""Calls of a store with a time limit, which the store's methods may lack.

`torch.distributed.TCPStore` waits for ever for the answer of a stopped or unreachable server. So its methods run in
a separate thread, and the rank waits for the thread.
"""

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, Self, TypeVar

from hpccoll.text import say

__all__ = ["REPORT_EVERY", "NoThreadError", "PatientStore", "SilentStoreError", "Store", "no_thread"]

T = TypeVar("T")
REPORT_EVERY = 10.0
LOOKS = 4
"""Number of polls in a short wait."""
MARGIN = 5.0
"""Seconds by which the answer to a call may be late."""


class SilentStoreError(Exception):
    """The store has not answered in time."""


def no_thread(error: RuntimeError) -> str:
    """Say which limits to raise, as Python's error does not."""
    return (
        f"this process may not start another thread ({error}): raise its limits (ulimit -u, ulimit -v, pids.max of its "
        "cgroup)"
    )


class NoThreadError(Exception):
    """The system allows this process no more threads."""


class Store(Protocol):
    """The required methods of a store: four of torch.distributed.Store."""

    def set(self, key: str, value: bytes) -> None:
        """Set the value of a key that all ranks see."""

    def get(self, key: str) -> bytes:
        """Give the value of a key that is there."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Return when all keys are there; raise after `timeout`."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""


class PatientStore:
    """A store for one exchange: a context manager whose methods raise SilentStoreError at its time limit."""

    def __init__(self, store: Store, seconds: float, began: float | None = None) -> None:
        """Begin an exchange, or go on with one that has begun at a time of the monotonic clock."""
        self.store, self.seconds = store, seconds
        self.limit = (time.monotonic() if began is None else began) + seconds
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        try:
            threading.Thread(target=self._serve, name="hpccoll store", daemon=True).start()
        except RuntimeError as error:
            raise NoThreadError(no_thread(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.put(None)

    @property
    def left(self) -> float:
        """Seconds until the time of the exchange is over."""
        return self.limit - time.monotonic()

    def set(self, key: str, value: bytes) -> None:
        """See Store."""
        self._call(lambda: self.store.set(key, value), f"set {key}")

    def get(self, key: str) -> bytes:
        """See Store."""
        return self._call(lambda: bytes(self.store.get(key)), f"get {key}")

    def there(self, key: str) -> bool:
        """Whether the key is there."""
        return self._call(lambda: self.store.check([key]), f"look for {key}")

    def look(self, keys: list[str], seconds: float) -> bool:
        """Do as `wait`, for waits of less than a few seconds: torch prints a warning whenever its wait() is over."""
        until = time.monotonic() + min(seconds, self.left)
        while not (found := self._call(lambda: self.store.check(keys), "look for keys")) and time.monotonic() < until:
            time.sleep(seconds / LOOKS)
        return found

    def wait(self, keys: list[str], seconds: float) -> bool:
        """Whether all keys are there within `seconds`, and before the time of the exchange is over."""
        until = time.monotonic() + min(seconds, self.left)
        while (left := until - time.monotonic()) > 0:
            try:
                self._call(lambda left=left: self.store.wait(keys, timedelta(seconds=left)), "wait", left)  # type: ignore[misc]
            except SilentStoreError:
                raise
            except Exception:  # noqa: BLE001 - each store has its class; a broken one fails in check()
                if self._call(lambda: self.store.check(keys), "look for keys"):
                    return True
                time.sleep(0.001)  # the wait() of some stores returns at once
            else:
                return True
        return False

    def _call(self, method: Callable[[], T], what: str, seconds: float = 0) -> T:
        """Let the thread call a method that may take `seconds`; reraise its exception."""
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self.calls.put(lambda: answers.put(_outcome(method)))
        began, expected = time.monotonic(), seconds
        until = max(self.limit, began) + MARGIN  # a process that did not run for a while gives the store its time, too
        while True:
            try:
                left = until - time.monotonic()
                value, error = answers.get(timeout=max(0.01, min(expected + REPORT_EVERY, left)))
            except queue.Empty:
                now = time.monotonic()
                self._complain(what, now - began, is_over=now >= until)
                expected = 0
            else:
                if error is not None:
                    raise error
                return value  # type: ignore[no-any-return]

    def _complain(self, what: str, waited: float, *, is_over: bool) -> None:
        """Print that the store does not answer; raise it if the time of the call is over."""
        text = f"the store has not answered for {waited:.0f} s ({what})"
        if is_over:
            raise SilentStoreError(
                f"{text}: is the process that serves it, often rank 0, stopped, or its host cut off? (longest wait: "
                f"{self.seconds:g} s, HPCCOLL_START_TIMEOUT)"
            )
        say(f"hpccoll: start: {text}")

    def _serve(self) -> None:
        while (call := self.calls.get()) is not None:
            call()


def _outcome(method: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return method(), None
    except BaseException as error:  # noqa: BLE001 - the waiting thread reraises it
        return None, error
