# SPDX-License-Identifier: Apache-2.0
"""What a call of the backend returns: torch's Work over the library's handles, and its future.

In device memory "done" is "launched": results are ordered by streams. Who settles a work does so in its own thread's
current stream; so an event behind that is what every other stream waits for.

Whoever waits for a work drives it, as with handles. A future is waited for in C++ by those who know nothing of handles
(DDP's reducer), so a work whose future was asked for is also looked after by a thread of its own kind; without futures
there is no such thread.
"""

from __future__ import annotations

import atexit
import collections
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hpccoll import errors
from hpccoll.collectives import Handle
from hpccoll.torch.distributed.arguments import Finish
from hpccoll.torch.distributed.futures import Future

__all__ = ["Work"]

FORGETFUL = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9)
"""Whether this torch lets go of the Python half of a work while C++ still holds the other half, and then waits for
what never comes. The last works are kept then, without their tensors."""
_kept: collections.deque[Work] = collections.deque(maxlen=4096)

SLICE = 0.002
"""Seconds for which the finisher waits for its oldest work before it looks whether another one is done."""
STOP_PATIENCE = 10.0
"""Seconds that a callback of a future may hold up the end of the process."""


_Base: Any = dist.Work


class Work(_Base):  # type: ignore[misc]
    """Handles in flight, the tensors that they fill, and what has to be copied when they are done."""

    def __init__(
        self,
        what: str,
        handles: Sequence[Handle],
        tensors: list[torch.Tensor],
        finish: Finish | None,
        timeout: float,
        settled: Callable[[], None],
        path: str,
    ) -> None:
        """Take over what was begun.

        :param what: the operation and its group, for errors
        :param tensors: the result; held, with all that `finish` holds, until the work is done
        :param finish: called once with the handles' results
        :param timeout: seconds that the group allows for an operation
        :param settled: called once, when all is over
        :param path: of the future, see Future
        """
        super().__init__()
        self._what, self._handles = what, list(handles)
        self._tensors: Callable[[], list[torch.Tensor]] = lambda: tensors
        self._finish, self._on_settled, self._path = finish, settled, path
        self._limit, self._deadline = timeout, time.monotonic() + timeout
        self._lock = threading.Lock()
        self._settled, self._source = False, -1
        self._error: Exception | None = None
        self._future: Future | None = None
        self._device = next((t.device for t in tensors if t.is_cuda), None)
        self._behind: Any = None  # device memory: an event behind the results
        if FORGETFUL:
            _kept.append(self)
            if finish is not None:  # nobody will notice that the work was dropped
                _finisher.add(self)

    # ---- torch's side ------------------------------------------------------------------------------

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Block until the work is done; raise DistBackendError if it failed, or is late.

        In device memory: until it has been launched; the current stream then waits for the results.

        :param timeout: none or zero: what the group allows
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if not self._settled:
            self._block(seconds or self._limit)
            self.settle()
        if self._error is not None:
            raise self._error
        self._go_on()
        return True

    def is_completed(self) -> bool:
        """Whether the work is done, well or not."""
        if not self._settled and self.over():
            self.settle()
        return self._settled and (self._behind is None or bool(self._behind.query()))

    def is_success(self) -> bool:
        """Whether the work is done, and well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, if the work is done and failed."""
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result, after waiting for it."""
        self.wait()
        return self._tensors()

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def source_rank(self) -> int:
        """The rank that a recv from any source received from."""
        self.wait()
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Future:
        """A future of the list of result tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = Future(self._path, [self._device] if self._device else [])
            settled = self._settled
        if settled:
            self._tell()
        else:
            _finisher.add(self)
        return self._future

    # ---- ours ----------------------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether settle() would not block."""
        return self._settled or all(h.launched() for h in self._handles) or time.monotonic() > self._deadline

    def _block(self, seconds: float) -> None:
        """Return when all handles are launched; raise DistBackendError after `seconds`."""
        limit = time.monotonic() + seconds
        for handle in self._handles:
            try:
                handle.wait(max(limit - time.monotonic(), 0.0))
            except TimeoutError:
                raise self._late(seconds) from None
            except errors.HpccollError:
                pass  # settle() finds it again

    def drive(self, seconds: float) -> None:
        """Move this work for at most `seconds`."""
        for handle in self._handles:
            if not handle.launched():
                try:
                    handle.wait(seconds)
                except (TimeoutError, errors.HpccollError):
                    return

    def settle(self) -> None:
        """Make the outcome of handles that are done, or late; once, whoever comes first."""
        with self._lock:
            if self._settled:
                return
            try:
                results = [handle.wait(0.0) for handle in self._handles]
                if self._finish is not None:
                    self._finish(results)
                if self._device is not None:
                    self._behind = torch.cuda.current_stream(self._device).record_event()
            except TimeoutError:
                self._error = self._late(self._limit)
            except errors.HpccollError as error:
                self._error = dist.DistBackendError(f"{self._what}: {error}")
                self._error.__cause__ = error
            else:
                self._source = self._handles[0].peer if self._handles else -1
            self._finish = None
            self._handles = []
            self._settled = True
            self._on_settled()
            tell = self._future is not None
        if tell:
            self._tell()
        if FORGETFUL:
            weak = [weakref.ref(tensor) for tensor in self._tensors()]
            self._tensors = lambda: [tensor for one in weak if (tensor := one()) is not None]

    def _go_on(self) -> None:
        """What this thread puts into its current stream from here on finds the results, whoever made them."""
        if self._behind is not None:
            torch.cuda.current_stream(self._device).wait_event(self._behind)

    def _tell(self) -> None:
        assert self._future is not None
        self._go_on()
        if self._error is None:
            self._future.set_result(self._tensors())
        else:
            self._future.set_exception(self._error)

    def _late(self, seconds: float) -> Exception:
        return dist.DistBackendError(f"{self._what}: timeout after {seconds:g} s")

    def __del__(self) -> None:
        # Dropped in flight: the result must still arrive where it was asked for.
        if not getattr(self, "_settled", True) and self._finish is not None:
            _finisher.add(
                Work(
                    self._what,
                    self._handles,
                    self._tensors(),
                    self._finish,
                    self._limit,
                    self._on_settled,
                    self._path,
                )
            )


class _Finisher:
    """Threads that settle works: one waits, and while it runs what a future's owner has attached, another one does.

    So a callback may itself wait for a future (PowerSGD's hook does). There are as many threads as ever settled works
    at one moment, and the one that waits: two, one more for each level at which callbacks wait for futures of works
    that they have begun, and now and then another because the system had stopped one just behind its work.

    They are stopped before the interpreter ends. It ends threads where they next ask for its lock; one that does so on
    its way back from a callback is within torch's C++, which is not ready for that and aborts the process.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # where there are no such threads
        atexit.register(self.stop)

    def _begin(self) -> None:
        self.works: list[Work] = []
        self.changed = threading.Condition()
        self.leader = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.settling = 0
        self.stopping = False

    def stop(self) -> None:
        """End the threads, when those that run callbacks have come back from them: STOP_PATIENCE at most."""
        deadline = time.monotonic() + STOP_PATIENCE
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def add(self, work: Work) -> None:
        with self.changed:
            self.works.append(work)
            self.changed.notify()
            self._keep_a_leader()

    def _keep_a_leader(self) -> None:
        if self.works and len(self.threads) == self.settling and not self.stopping:
            self.threads.append(threading.Thread(target=self._run, name="hpccoll futures", daemon=True))
            self.threads[-1].start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work.settle()
            finally:
                with self.changed:
                    self.settling -= 1
            del work

    def _next(self) -> Work | None:
        """Wait for a work that is over and take it; None: stop."""
        with self.leader:
            while True:
                with self.changed:
                    while not self.works and not self.stopping:
                        self.changed.wait()
                    if self.stopping:
                        return None
                    works = list(self.works)
                for work in works:
                    if work.over():
                        with self.changed:
                            self.works.remove(work)
                            self.settling += 1
                            self._keep_a_leader()
                        return work
                works[0].drive(SLICE)
                del work, works


_finisher = _Finisher()
