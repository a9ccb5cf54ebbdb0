# SPDX-License-Identifier: Apache-2.0
"""The arguments of ext/cuda's packer (pack.h) for ctypes; the tests of its kernels use this module, too."""

import ctypes
from ctypes import c_double, c_int, c_int64, c_uint64
from pathlib import Path

SOURCES = (
    "ext/cuda/kernels/pack_*.c",
    "ext/cuda/driver/module.c",
    "ext/cuda/driver/driver.c",
    "ext/cuda/driver/library.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
)
"""The packer's C files: patterns from the project's root."""
PTX = Path(__file__).resolve().parents[1] / "hpccoll" / "_kernels"
"""The folder of the kernels' texts."""


class Tensor(ctypes.Structure):
    """hc_pack_tensor."""

    _fields_ = [("address", c_uint64), ("count", c_int64)]


class Order(ctypes.Structure):
    """hc_pack_order."""

    _fields_ = [
        ("tensors", ctypes.POINTER(Tensor)), ("n", c_int), ("tensor", c_int), ("buffer", c_int), ("unpack", c_int),
        ("scale", c_double), ("divisor", c_double), ("at", c_uint64),
    ]  # fmt: skip
