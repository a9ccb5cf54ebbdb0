# SPDX-License-Identifier: Apache-2.0
"""What Horovod's horovod.data.data_loader_base has: BaseDataLoader and AsyncDataLoaderMixin.

Each loop over an asynchronous loader has a thread of its own, which reads the batches of one epoch into a queue. It
ends with the loop: at the end of the batches, and if the loop is left before. So the next loop begins a new epoch.
"""

import atexit
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

AT_EXIT = 1.0
"""Seconds that the end of the process waits for threads whose `_iterate()` is in the middle of a batch."""


class BaseDataLoader:
    """A data loader. A program's class has `__len__()` and `_iterate()`.

    >>> from hpccoll.data import AsyncDataLoaderMixin, BaseDataLoader
    >>> class Squares(BaseDataLoader):
    ...     def __len__(self):
    ...         return 3
    ...     def _iterate(self):
    ...         yield from (0, 1, 4)
    >>> class AsyncSquares(AsyncDataLoaderMixin, Squares):
    ...     pass
    >>> list(Squares()), list(AsyncSquares(async_loader_queue_size=2))
    ([0, 1, 4], [0, 1, 4])
    """

    def __len__(self) -> int:
        """Return the number of batches of an epoch.

        :raises NotImplementedError: the program's class does not define it
        """
        raise NotImplementedError(f"{type(self).__name__} does not define __len__(), the number of batches")

    def _iterate(self) -> Iterable[Any]:
        """Return the batches of one epoch; usually a generator.

        :raises NotImplementedError: the program's class does not define it
        """
        raise NotImplementedError(f"{type(self).__name__} does not define _iterate(), which gives the batches")

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of one epoch."""
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Change a batch before the loop gets it; a trainer may replace this method."""
        return batch


class AsyncDataLoaderMixin:
    """A mixin that reads batches ahead: a thread calls `_iterate()`, the loop takes the batches from a queue.

    It stands before the loader: `class AsyncSquares(AsyncDataLoaderMixin, Squares)`. `_process_batch()` is called by
    the thread of the loop. An exception of `_iterate()` reaches the loop after the batches before it.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        """Make the loader.

        :param async_loader_queue_size: how many batches the queue holds; 0: there is no thread
        :param debug_data_loader: print a line when a thread begins and ends
        :param args: arguments of the loader
        :param kwargs: its arguments by keyword
        :raises ValueError: the size is negative
        :raises TypeError: the size is no integer
        """
        try:
            size = operator.index(async_loader_queue_size)
        except TypeError:
            raise TypeError(f"async_loader_queue_size={async_loader_queue_size!r} is no integer") from None
        if size < 0:
            raise ValueError(f"async_loader_queue_size={size}: it is at least 0, which reads without a thread")
        self.async_loader_queue_size = size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """End the threads of this loader, and the loops that take from them; drop what these have read ahead.

        A later loop begins a new epoch.
        """
        for epoch in _OPEN.copy():
            if epoch.loader is self:
                epoch.close()

    def __iter__(self: Any) -> Iterator[Any]:
        """Iterate over the batches of one epoch, which a thread reads ahead."""
        if self.async_loader_queue_size == 0:
            for batch in self._iterate():
                yield self._process_batch(batch)
            return
        epoch = _Epoch(self, self.async_loader_queue_size, self.debug_data_loader)
        try:
            while taken := epoch.take():
                yield self._process_batch(taken[0])
        finally:
            epoch.close()


class _Epoch:
    """One pass over a loader: a thread that reads, a queue, and a loop that takes."""

    def __init__(self, loader: Any, size: int, debug: bool) -> None:
        self.loader = loader
        self._size, self._debug = size, debug
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._batches: deque[Any] = deque()
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name=f"batches of {type(loader).__name__}", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    def take(self) -> tuple[Any, ...]:
        """Wait for the next batch.

        :returns: the batch in a tuple; an empty one at the end
        :raises BaseException: what `_iterate()` has raised
        """
        if os.getpid() != self._process:
            name = type(self.loader).__name__
            raise RuntimeError(f"process {self._process} reads the batches of this loop over {name}: begin a new loop")
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._ended or self._closed)
            if self._batches:
                self._changed.notify_all()
                return (self._batches.popleft(),)
            error, self._error = self._error, None
            if error is None or self._closed:
                return ()
        try:
            raise error
        finally:
            del error  # its traceback has this frame

    def close(self, seconds: float | None = None) -> None:
        """Drop what is in the queue, and let the thread end after the batch that it reads.

        :param seconds: how long to wait until it has ended; None: until then
        """
        _OPEN.discard(self)
        if os.getpid() != self._process:  # the thread is not in this process, and may have held the lock
            return
        with self._changed:
            self._closed = True
            self._batches.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:  # the garbage collector may call from any thread
            self._thread.join(seconds)

    def _read(self) -> None:
        self._say("begins")
        number = 0
        try:
            for batch in self.loader._iterate():  # noqa: SLF001 - Horovod's name of a method that programs define
                if not self._put(batch):
                    break
                number += 1
        except BaseException as error:  # noqa: BLE001 - the loop raises it
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self._say(f"ends after {number} batches")

    def _put(self, batch: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._batches) < self._size or self._closed)
            if not self._closed:
                self._batches.append(batch)
                self._changed.notify_all()
            return not self._closed

    def _say(self, what: str) -> None:
        if self._debug:
            print(f"{type(self.loader).__name__}: the thread that reads batches {what}", flush=True)


_OPEN: set[_Epoch] = set()
"""Epochs whose threads may run."""


def _end_all() -> None:
    """End the threads before the interpreter takes its modules apart, which they may be using."""
    epochs, end = _OPEN.copy(), time.monotonic() + AT_EXIT
    for epoch in epochs:
        epoch.close(0)
    for epoch in epochs:
        epoch.close(max(0.0, end - time.monotonic()))


atexit.register(_end_all)
