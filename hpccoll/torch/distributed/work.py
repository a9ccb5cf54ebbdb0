# SPDX-License-Identifier: Apache-2.0
"""torch's Work over the library's handles, and its future. Each call of the backend returns a Work.

In device memory a work is done when it is launched: streams order the results. A thread settles a work in its current
stream, and records an event there for which all other streams wait.

A thread that waits for a work drives it, as with handles. Futures are different: C++ code such as DDP's reducer waits
for them without knowing handles. So threads of this module settle the works that have a future. Programs without
futures have no such threads.
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
from hpccoll.lost_errors import warn_of_lost_error
from hpccoll.torch.distributed.arguments import Finish
from hpccoll.torch.distributed.futures import Future

__all__ = ["Work", "register_in_flight"]

FORGETFUL = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9)
"""Whether this torch frees the Python half of a work while C++ holds the other half, and then waits for ever.

With such a version this module keeps the last works, without their tensors."""
_kept: collections.deque[Work] = collections.deque(maxlen=4096)

SLICE = 0.002
"""Seconds for which the finisher waits for its oldest work before it checks whether another one is done."""
STOP_PATIENCE = 10.0
"""Seconds by which a future's callback may delay the end of the process."""


_c10d: Any = torch._C._distributed_c10d  # noqa: SLF001
_Base: Any = dist.Work


class Work(_Base):  # type: ignore[misc]
    """Handles in flight, the tensors that they fill, and the copies to make when they are done."""

    def __init__(
        self,
        what: str,
        handles: Sequence[Handle],
        tensors: list[torch.Tensor],
        finish: Finish | None,
        timeout: float,
        settled: Callable[[], None],
        path: str,
        report: Callable[[], str] = str,
    ) -> None:
        """Take over operations in flight.

        :param what: the operation and its group, for errors
        :param tensors: the result; kept alive, with all that `finish` refers to, until the work is done
        :param finish: called once with the handles' results
        :param timeout: seconds that the group allows for an operation
        :param settled: called once, when the work is settled, successfully or not
        :param path: the path of the work's future, see Future
        :param report: says for which ranks the work waits; "" if that is not known yet
        """
        super().__init__()
        self._what, self._handles = what, list(handles)
        self._tensors: Callable[[], list[torch.Tensor]] = lambda: tensors
        self._finish, self._on_settled, self._path, self._report = finish, settled, path, report
        self._limit, self._deadline = timeout, time.monotonic() + timeout
        self._lock = threading.Lock()
        self._settled, self._source = False, -1
        self._error: Exception | None = None
        self._told = False  # the program has asked for the error
        self._future: Future | None = None
        self._device = next((t.device for t in tensors if t.is_cuda), None)
        self._behind: Any = None  # device memory: an event after the results
        if FORGETFUL:
            _kept.append(self)
            if finish is not None:  # __del__ will not run
                _finisher.add(self)

    # ---- called by torch ---------------------------------------------------------------------------

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Block until the work is done; in device memory until it is launched, as the current stream then waits for it.

        :param timeout: seconds; None or zero: the group's time limit
        :raises DistBackendError: the work failed, or is not done in time
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if not self._settled:
            self._block(seconds or self._limit)
            self.settle()
        if self._error is not None:
            self._told = True
            raise self._error
        self._go_on()
        return True

    def is_completed(self) -> bool:
        """Whether the work is done, successfully or not."""
        if not self._settled and self.over():
            self.settle()
        return self._settled and (self._behind is None or bool(self._behind.query()))

    def is_success(self) -> bool:
        """Whether the work is done, and successfully."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return the error if the work is done and has failed."""
        if not self.is_completed():
            return None
        self._told = True
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Wait for the result; return its tensors."""
        self.wait()
        return self._tensors()

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def source_rank(self) -> int:
        """Wait; return the sender of the message of a recv from any source."""
        self.wait()
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Future:
        """Return a future of the list of result tensors."""
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

    # ---- called by hpccoll ---------------------------------------------------------------------------

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
                pass  # settle() will see the same error

    def drive(self, seconds: float) -> None:
        """Drive this work for at most `seconds`."""
        for handle in self._handles:
            if not handle.launched():
                try:
                    handle.wait(seconds)
                except (TimeoutError, errors.HpccollError):
                    return

    def settle(self) -> None:
        """Set the work's result from handles that are done or late. Only the first call has an effect."""
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
            except Exception as error:  # noqa: BLE001 - also torch's, of a copy: this is what ends the work
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
        """Let the current stream wait for the results, before this thread's next work in it."""
        if self._behind is not None:
            torch.cuda.current_stream(self._device).wait_event(self._behind)

    def _tell(self) -> None:
        assert self._future is not None
        self._told = True
        self._go_on()
        if self._error is None:
            self._future.set_result(self._tensors())
        else:
            self._future.set_exception(self._error)

    def _late(self, seconds: float) -> Exception:
        said = self._report()
        return dist.DistBackendError(f"{self._what}: timeout after {seconds:g} s{f': {said}' if said else ''}")

    def __del__(self) -> None:
        error: Exception | None = getattr(self, "_error", None)
        if error is not None and not self._told and not _finisher.stopping:
            warn_of_lost_error(self._what, error.__cause__ or error)
        # The work is dropped in flight, but its tensors must still get the result.
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
                    self._report,
                )
            )


_wanted_in_flight: Callable[[], bool] = getattr(_c10d, "_allow_inflight_collective_as_graph_input", bool)


def register_in_flight(work: Work, tensors: Sequence[torch.Tensor]) -> None:
    """Let wait_tensor() of functional collectives wait for the work if the program has asked torch for that.

    torch does so for groups that are written in C++: allow_inflight_collective_as_graph_input_ctx().
    """
    if _wanted_in_flight():
        for tensor in tensors:
            _c10d._register_work(tensor, work)  # noqa: SLF001


class _Finisher:
    """Threads that settle works. One thread waits; while it runs a future's callbacks, another thread waits instead.

    So a callback may itself wait for a future (PowerSGD's hook does). The number of threads is the most that have
    settled works at the same time, plus the waiting one: two, one more per level at which callbacks wait for futures of
    works that they have started, and sometimes another one because the system stopped a thread just after its work.

    The threads must end before the interpreter does. The interpreter ends a thread when that next takes the
    interpreter's lock; a thread that returns from a callback takes it inside torch's C++ code, which would abort the
    process.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # a child has none of these threads
        atexit.register(self.stop)

    def _begin(self) -> None:
        self.works: list[Work] = []
        self.changed = threading.Condition()
        self.leader = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.settling = 0
        self.stopping = False

    def stop(self) -> None:
        """End the threads. Wait for those that run callbacks, for STOP_PATIENCE at most."""
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
        """Wait for a work that is over and take it; return None to stop."""
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
