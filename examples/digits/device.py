# SPDX-License-Identifier: Apache-2.0
"""Where the arrays of a run are: the one place that chooses between NumPy and CuPy.

The network computes with operators and with functions of NumPy that CuPy's arrays take over; hpccoll reduces either.
"""

from typing import Any

import numpy as np

DEVICES = ("cpu", "cuda")


def array_module(device: str) -> Any:
    """NumPy, or CuPy where a GPU is there for it; else the program ends and says what is missing."""
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
    """Each rank of a machine takes its GPU; if there are fewer, ranks share them."""
    if xp is not np:
        xp.cuda.Device(local_rank % xp.cuda.runtime.getDeviceCount()).use()


def to_host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()
