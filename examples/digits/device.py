# SPDX-License-Identifier: Apache-2.0
"""Chooses the library for a run's arrays, NumPy or CuPy; no other module does.

The network computes with operators and with functions of NumPy, which also work on CuPy's arrays. hpccoll reduces both.
"""

from typing import Any

import numpy as np

DEVICES = ("cpu", "cuda")


def array_module(device: str) -> Any:
    """Return NumPy, or CuPy if it has a GPU; otherwise end the program with the reason."""
    if device == "cpu":
        return np
    try:
        import cupy
    except ImportError:
        raise SystemExit("--device cuda needs CuPy, which is not installed here: pip install cupy-cuda12x") from None
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        found = 0
    if not found:
        raise SystemExit("--device cuda needs a GPU, and CuPy finds none on this machine: leave the flag out")
    return cupy


def use(xp: Any, local_rank: int) -> None:
    """Let each rank of a machine use its own GPU; if there are fewer GPUs, ranks share them."""
    if xp is not np:
        xp.cuda.Device(local_rank % xp.cuda.runtime.getDeviceCount()).use()


def to_host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()
