# SPDX-License-Identifier: Apache-2.0
"""Conversions between floats: every value of the narrow types, every rounding edge of the wide ones."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
HALVES, FLOATS = [F16, BF16], [F16, BF16, F32, F64]
EVERY = np.arange(1 << 16, dtype=np.uint16)


def rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    """x (float64) to the nearest value of a half-width type, ties to even bits: by search, not by arithmetic."""
    values = EVERY[: 1 << 15].view(dtype).astype(np.float64)
    finite = values[np.isfinite(values)]
    magnitude = np.abs(x)
    above = np.searchsorted(finite, magnitude).clip(1, finite.size - 1)
    low, high = finite[above - 1], finite[above]
    to_low, to_high = magnitude - low, high - magnitude  # exact where it matters: they are neighbours
    up = (to_high < to_low) | ((to_high == to_low) & (above % 2 == 0))
    index = np.where(up, above, above - 1).astype(np.uint16)
    largest, step = finite[-1], finite[-1] - finite[-2]
    index[magnitude >= largest + step / 2] = finite.size  # infinity follows the largest
    index[np.isnan(x)] = finite.size + 1
    return (index | (np.signbit(x).astype(np.uint16) << 15)).view(dtype)


def is_nan(x: Array) -> Array:
    """ml_dtypes warns of signalling NaN."""
    with np.errstate(invalid="ignore"):
        return np.isnan(x)


def assert_same_bits(got: Array, want: Array) -> None:
    """All NaN alike."""
    assert got.dtype == want.dtype
    nan = is_nan(want)
    assert (is_nan(got) == nan).all()
    integer = f"u{got.dtype.itemsize}"
    wrong = (got.view(integer) != want.view(integer)) & ~nan
    assert not wrong.any(), f"{got[wrong][:4]} should be {want[wrong][:4]} at {np.flatnonzero(wrong)[:4]}"


def edges(dtype: np.dtype[Any], wide: np.dtype[Any]) -> Array:
    """All values of a half-width type, the middles between them, and the neighbours of both in the wide type."""
    values = EVERY.view(dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        middles = (values[:-1] + values[1:]) / 2
        exact = np.concatenate([values, middles, [65520.0, 3.3961775292304601e38, 1e300, -1e300, 5e-324]]).astype(wide)
        return np.concatenate([exact, np.nextafter(exact, wide.type(np.inf)), np.nextafter(exact, wide.type(-np.inf))])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("wide", [F32, F64], ids=str)
def test_every_half_widens_exactly(host: Any, dtype: np.dtype[Any], wide: np.dtype[Any]) -> None:
    every = EVERY.view(dtype)
    with np.errstate(all="ignore"):
        assert_same_bits(host.convert(every, wide), every.astype(wide))
    assert_same_bits(host.convert(host.convert(every, wide), dtype), every)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("wide", [F32, F64], ids=str)
def test_narrowing_rounds_to_nearest_even(host: Any, dtype: np.dtype[Any], wide: np.dtype[Any]) -> None:
    random = np.frombuffer(np.random.default_rng(1).bytes(200_000 * wide.itemsize), wide)
    with np.errstate(all="ignore"):
        for x in (edges(dtype, wide), random, np.random.default_rng(2).standard_normal(200_000).astype(wide)):
            assert_same_bits(host.convert(x, dtype), rounded(x.astype(np.float64), dtype))


@pytest.mark.parametrize("pair", [(F16, BF16), (BF16, F16)], ids=str)
def test_half_to_half(host: Any, pair: tuple[np.dtype[Any], np.dtype[Any]]) -> None:
    every = EVERY.view(pair[0])
    with np.errstate(all="ignore"):
        assert_same_bits(host.convert(every, pair[1]), rounded(every.astype(np.float64), pair[1]))


def test_float64_and_float32(host: Any) -> None:
    x = np.frombuffer(np.random.default_rng(3).bytes(8 * 100_000), F64)
    x = np.concatenate([x, np.random.default_rng(4).standard_normal(1001), [np.nan, np.inf, -0.0, 1e39, 1e-46, 1e-40]])
    with np.errstate(all="ignore"):
        narrow = x.astype(F32)
        assert_same_bits(host.convert(x, F32), narrow)
        assert_same_bits(host.convert(narrow, F64), narrow.astype(F64))


@pytest.mark.parametrize("pair", list(itertools.product(FLOATS, FLOATS)), ids=lambda p: f"{p[0]}-{p[1]}")
def test_scale(host: Any, pair: tuple[np.dtype[Any], np.dtype[Any]]) -> None:
    """In float64 where either side is float64, else in float32."""
    wide = F64 if F64 in pair else F32
    for n, scale in zip([0, 1, 7, 16, 33, 511, 512, 513, 1500], itertools.cycle([1 / 3, -1e-3, 2.0**15]), strict=False):
        x = np.random.default_rng(n).standard_normal(n).astype(pair[0])
        product = x.astype(wide) * wide.type(scale)
        with np.errstate(all="ignore"):
            want = rounded(product.astype(F64), pair[1]) if pair[1] in HALVES else product.astype(pair[1])
        assert_same_bits(host.convert(x, pair[1], scale), want)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_scale_of_complex_numbers(host: Any, dtype: Any) -> None:
    x = (np.arange(99) - 7.5 + 1j * np.arange(99)).astype(dtype)
    assert (host.convert(x, dtype, 0.25) == x * 0.25).all()


def test_equal_types_without_scale_are_copied(host: Any) -> None:
    """Bit for bit, signalling NaN included."""
    for dtype in ("bool", "int8", "uint64", "float16", BF16, "float32", "float64", "complex128"):
        x = np.frombuffer(np.random.default_rng(5).bytes(33 * 16), dtype)
        assert host.convert(x, dtype).tobytes() == x.tobytes()


@pytest.mark.parametrize("pair", list(itertools.product(FLOATS, FLOATS)), ids=lambda p: f"{p[0]}-{p[1]}")
def test_unaligned_and_nothing_after_the_end(host: Any, pair: tuple[np.dtype[Any], np.dtype[Any]]) -> None:
    for n in (1, 5, 17, 70):
        x = np.frombuffer(bytes(3) + np.arange(n).astype(pair[0]).tobytes(), np.uint8)[3:].view(pair[0])
        guarded = np.full(n * pair[1].itemsize + 129, 0xA5, np.uint8)
        to = guarded[1:-128].view(pair[1])
        host.library.hc_host_convert(to.ctypes.data, code(pair[1]), x.ctypes.data, code(pair[0]), n, 1.0)
        assert (to.astype(F64) == np.arange(n)).all()
        assert guarded[0] == 0xA5
        assert (guarded[-128:] == 0xA5).all()


def code(dtype: np.dtype[Any]) -> int:
    return 9 + FLOATS.index(dtype)
