# SPDX-License-Identifier: Apache-2.0
"""The kernels that add up, compiled for the host, and their launch over the fake driver: the values of the host's."""

import ctypes
from collections.abc import Callable, Iterator
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from packer import PTX

pytestmark = pytest.mark.timeout(120)
Array = NDArray[Any]
AVERAGE, SUM, MIN, MAX, PRODUCT, BAND = 0, 1, 3, 4, 5, 6
TYPES = {1: "uint8", 2: "int8", 5: "uint32", 6: "int32", 7: "uint64", 8: "int64", 9: "float16", 10: "bfloat16",
         11: "float32", 12: "float64"}  # fmt: skip
SOURCES = (
    "ext/cuda/kernels/sum_*.c", "ext/cuda/driver/module.c", "ext/cuda/driver/driver.c", "ext/cuda/driver/library.c",
    "ext/core/reserve.c",
    "ext/core/status.c",
    "ext/transport/kernels/*.c",
)  # fmt: skip
MOST = 508


class Order(ctypes.Structure):
    """hc_sum_order."""

    _fields_ = [
        ("to", c_void_p), ("from_", ctypes.POINTER(c_void_p)), ("n_from", c_int), ("dtype", c_int),
        ("reduction", c_int), ("count", c_int64), ("divisor", c_double),
    ]  # fmt: skip


class Summer:
    """The product's kernels on a fake device, with a stream; and the host's arithmetic."""

    def __init__(self, library: ctypes.CDLL, driver: Path) -> None:
        self.library, self.fake = library, ctypes.CDLL(str(driver))
        self.driver, self.summer = ctypes.create_string_buffer(1 << 16), ctypes.create_string_buffer(1 << 10)
        self.stream, context = c_void_p(), c_void_p()
        assert library.hc_driver_open(self.driver, str(driver).encode()) == 0
        self.fake.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.fake.cuCtxSetCurrent(context)
        self.fake.cuStreamCreateWithPriority(ctypes.byref(self.stream), 1, 0)
        self.status = library.hc_summer_open(self.summer, self.driver, str(PTX).encode())

    def close(self) -> None:
        self.library.hc_summer_close(self.summer)

    def launch(self, to: Array, sources: list[Array], dtype: int, reduction: int, divisor: float = 1.0) -> int:
        table = (c_void_p * len(sources))(*(s.ctypes.data for s in sources))
        order = Order(to.ctypes.data, table, len(sources), dtype, reduction, to.size, divisor)
        return int(self.library.hc_sum_launch(self.summer, ctypes.byref(order), self.stream))

    def wait(self) -> None:
        assert self.fake.cuStreamSynchronize(self.stream) == 0


@pytest.fixture(scope="session")
def library(build_c: Callable[..., Path]) -> ctypes.CDLL:
    built = ctypes.CDLL(str(build_c(*SOURCES, flags=("-shared", "-ldl"), name="sum.so")))
    built.hc_sum_kernel_name.restype = c_char_p
    return built


@pytest.fixture
def summer(library: ctypes.CDLL, fake_cuda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Summer]:
    """On a driver of its own: a copy, which reads the environment now."""
    monkeypatch.setenv("FAKE_CUDA_ORDER", "lazy")
    copy = tmp_path / "libcuda.so.1"
    copy.write_bytes(fake_cuda.read_bytes())
    made = Summer(library, copy)
    assert made.status == 0
    yield made
    made.wait()
    made.close()


def dtype_of(code: int) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if TYPES[code] == "bfloat16" else TYPES[code])


def random_bits(code: int, count: int, seed: int) -> Array:
    """Any bits: NaNs, infinities, zeros of two signs among them; 16-byte aligned."""
    size = dtype_of(code).itemsize
    raw = np.empty(count * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    flat = raw[start : start + count * size]
    rng = np.random.default_rng([code, count, seed])
    flat[:] = rng.integers(0, 256, flat.size, np.uint8)
    values = flat.view(dtype_of(code))
    special = rng.random(count) < 0.2
    values[special] = np.asarray([0.0, -0.0, 1, 2], dtype_of(code))[rng.integers(0, 4, int(special.sum()))]
    return values


def on_host(summer: Summer, sources: list[Array], code: int, reduction: int, divisor: float = 1.0) -> Array:
    """By the host's kernels, which tests/transport/kernels holds against NumPy."""
    result = np.empty_like(sources[0])

    reduce = summer.library.hc_host_reduce
    reduce.argtypes = [c_void_p, c_int, ctypes.POINTER(c_void_p), *[c_int] * 3, c_int64, c_double, c_double]
    table = (c_void_p * len(sources))(*(s.ctypes.data for s in sources))
    reduce(result.ctypes.data, code, table, len(sources), code, reduction, result.size, 1.0, divisor)
    return result


def same(got: Array, want: Array) -> None:
    """Equal bits; NaNs are equal."""
    if want.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            wide = [np.asarray(x, np.float64) for x in (got, want)]
        both = np.isnan(wide[0]) & np.isnan(wide[1])
        got, want = got[~both], want[~both]
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("reduction", [SUM, MIN, MAX, PRODUCT])
@pytest.mark.parametrize("code", TYPES)
def test_the_values_of_the_host(summer: Summer, code: int, reduction: int) -> None:
    """Whole vectors and a rest, one launch of one block and of many, into a source, and into an unaligned place."""
    for count, sources in ((1, 2), (77, 2), (5000, 5), (300_000, 2)):
        given = [random_bits(code, count, seed) for seed in range(sources)]
        want = on_host(summer, given, code, reduction)
        guarded = np.empty(count + 1, dtype_of(code))
        assert summer.launch(guarded[1:], given, code, reduction) == 0
        summer.wait()
        same(guarded[1:], want)
        assert summer.launch(given[-1], given, code, reduction) == 0
        summer.wait()
        same(given[-1], want)


@pytest.mark.parametrize("code", [9, 10, 11, 12])
@pytest.mark.parametrize("divisor", [1.5, 2.0, 3.0])
def test_a_mean_is_divided_once(summer: Summer, code: int, divisor: float) -> None:
    """The host's values where the sum is exact; beyond that float32 and float64 are added up in their own type."""
    rng = np.random.default_rng(code)
    given = [rng.integers(-99, 99, 5000).astype(dtype_of(code)) for _ in range(3)]
    got = np.empty_like(given[0])
    assert summer.launch(got, given, code, AVERAGE, divisor) == 0
    summer.wait()
    same(got, on_host(summer, given, code, AVERAGE, divisor))


def test_as_many_sources_as_fit(summer: Summer) -> None:
    """One rounding at the end, however many: 508 halves of a half's last place."""
    sources = [np.full(64, 2048.0, np.float16)] + [np.ones(64, np.float16)] * (MOST - 1)
    to = np.empty(64, np.float16)
    assert summer.launch(to, sources, 9, SUM) == 0
    summer.wait()
    assert (to == np.float16(2048 + MOST - 1)).all()


def test_what_has_no_kernel_is_refused(summer: Summer) -> None:
    x = np.zeros(8, np.float32)
    assert summer.launch(x, [x] * (MOST + 1), 11, SUM) < 0
    assert summer.launch(x, [x, x], 11, BAND) < 0
    assert summer.launch(x, [x, x], 13, SUM) < 0
    assert b"no kernel for this sum" in summer.summer.raw


def test_every_kernel_is_of_its_type(library: ctypes.CDLL) -> None:
    short = {"uint": "u", "int": "i", "float": "f", "bfloat": "bf"}
    for code, name in TYPES.items():
        kernel = library.hc_sum_kernel_name(library.hc_sum_kernel(code)).decode()
        stem = name.rstrip("0123456789")
        bits = int(name[len(stem) :])
        assert kernel == f"hc_sum_{short[stem]}{bits}"
    assert [library.hc_sum_kernel(code) for code in (0, 3, 4, 13, 14)] == [-1] * 5
