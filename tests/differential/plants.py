# SPDX-License-Identifier: Apache-2.0
"""Faults that a test plants into a rank, each one that a front end once had; the programs must find them."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import hpccoll


def _replace(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    mock.patch.object(owner, name, wrap(getattr(owner, name))).start()


def mean_for_sum() -> None:
    """NumPy: a sum is a mean."""
    _replace(
        hpccoll, "allreduce", lambda f: lambda x, op=hpccoll.SUM, **more: f(
            x, hpccoll.AVERAGE if op == hpccoll.SUM and np.asarray(x).dtype.kind == "f" else op, **more
        ),
    )  # fmt: skip


def layout() -> None:
    """NumPy: an array's elements are taken in the order in which they lie in memory."""

    def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *args, **more: f(np.ravel(x, order="K").reshape(x.shape), *args, **more)

    for name in ("allreduce", "allgather", "broadcast", "scan"):
        _replace(hpccoll, name, wrap)


def gradient_of_broadcast() -> None:
    """PyTorch: the gradient of a broadcast is a sum, as Horovod's was until 2021."""
    import hpccoll.torch as hvd

    def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *args, **more: f(x * hvd.size() - x.detach() * (hvd.size() - 1), *args, **more)

    _replace(hvd, "broadcast", wrap)


PLANTS: dict[str, tuple[Callable[[], None], str]] = {
    "mean for sum": (mean_for_sum, "numpy"),
    "layout": (layout, "numpy"),
    "gradient of broadcast": (gradient_of_broadcast, "torch"),
}
"""By its name, what plants a fault, and the front end whose programs find it."""


def plant(name: str) -> None:
    if name:
        PLANTS[name][0]()
