# SPDX-License-Identifier: Apache-2.0
"""The host's memory functions, called from Python with NumPy arrays, on every set of vector code that runs here."""

import ctypes
import platform
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
NAMES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 complex128"
DTYPES = [np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in NAMES.split()]
REDUCTIONS = "AVERAGE SUM ADASUM MIN MAX PRODUCT BAND BOR BXOR LAND LOR LXOR".split()


def sets_here() -> list[str]:
    """Return the sets that this processor can run, from the kernel and not from the code under test."""
    flags: set[str] = set()
    if platform.machine() == "x86_64":
        line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
        flags = set(line.split(":")[1].split())
    needs = {
        "avx512": {"avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
        "avx2": {"avx2", "f16c"},
    }
    return [name for name, needed in needs.items() if needed <= flags] + ["portable"]


Pointers = ctypes.POINTER(c_void_p)


class Host:
    """One build of the kernels; `select` chooses one of `sets`."""

    sets = sets_here()

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        library, pointer = self.library, c_void_p
        library.hc_host_copy.argtypes = [pointer, pointer, c_size_t]
        library.hc_host_convert.argtypes = [pointer, c_int, pointer, c_int, c_int64, c_double]
        library.hc_host_reduce.argtypes = [pointer, c_int, Pointers, *[c_int] * 3, c_int64, c_double, c_double]
        library.hc_host_divide.argtypes = [pointer, c_int, c_int64, c_int64]
        library.hc_host_neutral.argtypes = [pointer, c_int, c_int, c_int64]
        self.library.hc_kernels_name.restype = c_char_p
        self.library.hc_result_new.restype = c_void_p
        self.library.hc_result_new.argtypes = [c_size_t]
        self.library.hc_result_free.argtypes = [c_void_p]

    def select(self, name: str) -> int:
        return int(self.library.hc_kernels_select(name.encode()))

    def name(self) -> str:
        return str(self.library.hc_kernels_name().decode())

    def defined(self, reduction: str, dtype: DTypeLike) -> bool:
        return bool(self.library.hc_reduction_defined(REDUCTIONS.index(reduction), code(dtype)))

    def reduce(
        self,
        to: Array,
        sources: Sequence[Array],
        reduction: str,
        scale: float = 1.0,
        divisor: float = 1.0,
    ) -> Array:
        pointers = (c_void_p * len(sources))(*(x.ctypes.data for x in sources))
        self.library.hc_host_reduce(
            to.ctypes.data, code(to.dtype), pointers, len(sources), code(sources[0].dtype),
            REDUCTIONS.index(reduction), to.size, scale, divisor,
        )  # fmt: skip
        return to

    def convert(self, x: Array, dtype: DTypeLike, scale: float = 1.0) -> Array:
        to = np.empty(x.shape, dtype)
        self.library.hc_host_convert(to.ctypes.data, code(dtype), x.ctypes.data, code(x.dtype), x.size, scale)
        return to

    def divide(self, x: Array, divisor: int) -> None:
        self.library.hc_host_divide(x.ctypes.data, code(x.dtype), x.size, divisor)

    def neutral(self, dtype: DTypeLike, reduction: str, n: int) -> Array:
        to = np.empty(n, dtype)
        self.library.hc_host_neutral(to.ctypes.data, code(dtype), REDUCTIONS.index(reduction), n)
        return to


def code(dtype: DTypeLike) -> int:
    return DTYPES.index(np.dtype(dtype))


# Built like the library; and built quickly, with every undefined behaviour fatal.
BUILDS = {"fast": ("-O3", "-DNDEBUG"), "checked": ("-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all")}


@pytest.fixture(scope="session", params=["fast", pytest.param("checked", marks=pytest.mark.slow)])
def build(request: pytest.FixtureRequest, build_c: Callable[..., Path]) -> Host:
    flags = ("-shared", *BUILDS[request.param])
    return Host(build_c("ext/transport/kernels/*.c", "ext/core/reserve.c", flags=flags))


@pytest.fixture(params=Host.sets)
def host(request: pytest.FixtureRequest, build: Host) -> Host:
    assert build.select(request.param) == 0
    return build
