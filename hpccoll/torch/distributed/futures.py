# SPDX-License-Identifier: Apache-2.0
"""Futures whose callbacks may call collectives.

Calls match by their order, but a callback may run at any time: on one rank at once, because the result is complete, on
another rank much later, in another thread. So a collective inside a callback is named after the work of the callback.
PowerSGD's hook consists of such callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

__all__ = ["Future", "name_in_callback"]


class _Callback(threading.local):
    """The callback that this thread runs."""

    path: str | None = None
    """None: the thread runs no callback."""
    calls = 0
    """The number of collectives that the callback has called."""


_callback = _Callback()


def name_in_callback() -> str | None:
    """Return a name for a collective that is called now; None outside of callbacks."""
    if _callback.path is None:
        return None
    _callback.calls += 1
    return f"{_callback.path}/{_callback.calls}"


class _Failure:
    """The value of a failed future. It raises the error in any code that uses it as tensors.

    C++ does not check whether Python has set an exception. If the exception itself were the value, DDP's reducer would
    look for tensors in it, find none, and read beyond the end of their list.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def raises(self, *_: Any) -> NoReturn:
        raise self.error

    __reduce_ex__ = __str__ = raises  # the reducer calls the first to find tensors, the second to report


_Base: Any = torch.futures.Future


class Future(_Base):  # type: ignore[misc]
    """A future with a path, which identifies its work and its callback of that work."""

    def __init__(self, path: str, devices: Sequence[torch.device] = ()) -> None:
        """Make a future that is not complete.

        :param path: the same on all ranks
        :param devices: of the value, if it is in device memory; torch orders it with its streams
        """
        super().__init__(**({"devices": list(devices)} if devices else {}))
        self._path, self._callbacks, self._devices = path, 0, devices

    def set_exception(self, error: Exception) -> None:
        """Complete the future with an error. value(), wait() and C++ code that uses the value raise it."""
        self._set_unwrap_func(_Failure.raises)
        self.set_result(_Failure(error))

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """Call `callback` with this future when it is complete; return a future of the callback's result."""
        self._callbacks += 1
        after = Future(f"{self._path}.{self._callbacks}", self._devices)

        def run(done: Any) -> None:
            outer = _callback.path, _callback.calls
            _callback.path, _callback.calls = after._path, 0
            try:
                after.set_result(callback(done))
            except Exception as error:  # noqa: BLE001 - any error belongs to the future
                after.set_exception(error)
            finally:
                _callback.path, _callback.calls = outer

        self.add_done_callback(run)
        return after
