# SPDX-License-Identifier: Apache-2.0
"""Futures whose callbacks may call collectives.

Calls match by their order, and nobody knows when a callback runs: on one rank at once, because the result is there
already, on another one much later, in another thread. So a collective that is called in a callback is named after
the work whose callback it is, whenever and wherever that runs. PowerSGD's hook is made of such callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

__all__ = ["Future", "name_in_callback"]


class _Here(threading.local):
    path: str | None = None
    """Of the callback that this thread runs."""
    calls = 0
    """Collectives that it has called."""


_here = _Here()


def name_in_callback() -> str | None:
    """A name for a collective that is called now; None outside of callbacks."""
    if _here.path is None:
        return None
    _here.calls += 1
    return f"{_here.path}/{_here.calls}"


class _Failure:
    """The value of a future that failed: raises its error in whatever takes it for tensors.

    C++ asks no future whether an exception was set from Python. Given the exception as a value, DDP's reducer looks for
    the tensors that it holds, and reads behind the end of the list of none.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def raises(self, *_: Any) -> NoReturn:
        raise self.error

    __reduce_ex__ = __str__ = raises  # how the reducer looks for tensors; how it says that this is none


_Base: Any = torch.futures.Future


class Future(_Base):  # type: ignore[misc]
    """A future that knows its path: which work's it is, and which callback's of that work."""

    def __init__(self, path: str, devices: Sequence[torch.device] = ()) -> None:
        """Make one without a value.

        :param path: equal on all ranks
        :param devices: of a value in device memory; torch puts it in order with its streams
        """
        super().__init__(**({"devices": list(devices)} if devices else {}))
        self._path, self._callbacks, self._devices = path, 0, devices

    def set_exception(self, error: Exception) -> None:
        """Complete it with an error, which value() and wait() raise, and who takes its value in C++."""
        self._set_unwrap_func(_Failure.raises)
        self.set_result(_Failure(error))

    def then(self, callback: Callable[[Any], Any]) -> Future:
        """Call `callback` with this future when it is complete; give a future of what that returns."""
        self._callbacks += 1
        after = Future(f"{self._path}.{self._callbacks}", self._devices)

        def run(done: Any) -> None:
            outer = _here.path, _here.calls
            _here.path, _here.calls = after._path, 0
            try:
                after.set_result(callback(done))
            except Exception as error:  # noqa: BLE001 - it is the future's, whatever it is
                after.set_exception(error)
            finally:
                _here.path, _here.calls = outer

        self.add_done_callback(run)
        return after
