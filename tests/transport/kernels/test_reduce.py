# SPDX-License-Identifier: Apache-2.0
"""Every reduction of every dtype against NumPy, on every set of vector code."""

import itertools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
BOOL = np.dtype(bool)
INTEGERS = [np.dtype(f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("u", "")]
HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
FLOATS = [*HALVES, np.dtype(np.float32), np.dtype(np.float64)]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
ARITHMETIC = ["SUM", "AVERAGE", "PRODUCT"]
ORDER = ["MIN", "MAX"]
BITS = ["BAND", "BOR", "BXOR"]
LOGIC = ["LAND", "LOR", "LXOR"]
DEFINED = [
    *itertools.product(["SUM", "PRODUCT", *ORDER, *BITS, *LOGIC], [BOOL]),
    *itertools.product([*ARITHMETIC, *ORDER, *BITS, *LOGIC], INTEGERS),
    *itertools.product([*ARITHMETIC, *ORDER, *LOGIC], FLOATS),
    *itertools.product(ARITHMETIC, COMPLEX),
]
SIZES = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000]
DTYPES = [BOOL, *INTEGERS, *FLOATS, *COMPLEX]
SPECIAL = [
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    1e-40,
    -1e-310,
    6e-8,
    65504.0,
    65519.99,
    65520.0,
    3.4e38,
    -1e300,
]


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], n: int, special: bool = True) -> Array:
    """Random numbers; of integers every bit; among floats also what is special (which overflows in narrow types)."""
    if dtype == BOOL:
        return rng.integers(0, 2, n).astype(bool)
    if dtype in INTEGERS:
        return np.frombuffer(rng.bytes(n * dtype.itemsize), dtype).copy()
    x = rng.standard_normal(2 * n) * 10.0 ** rng.integers(-3, 3, 2 * n)
    if special:
        where = rng.random(2 * n) < 0.1
        x[where] = rng.choice(SPECIAL, where.sum())
    with np.errstate(all="ignore"):
        if dtype in COMPLEX:
            return x.astype(np.float32 if dtype == COMPLEX[0] else np.float64).view(dtype)
        return x[:n].astype(dtype)


def multiply_complex(a: Array, b: Array) -> Array:
    """By the four products, each rounded: NumPy's own multiplication may fuse some of them."""
    product = np.empty_like(a)
    product.real = a.real * b.real - a.imag * b.imag
    product.imag = a.real * b.imag + a.imag * b.real
    return product


def exact_mean(parts: tuple[float, ...], scale: float, divisor: float) -> float:
    """With Python's fractions: the scaled sum is rounded, then the quotient; of what is not finite as floats have it.

    What lies so low that it can decide a tie only does not count: the kernels keep twice the type's digits. A sum that
    is too large is divided first.
    """
    total = sum(parts)
    if not np.isfinite(parts).all():
        return total * scale / divisor
    least = max(map(abs, parts)) * 2.0**-106
    exact = sum((Fraction(x) for x in parts if abs(x) >= least), Fraction())
    if not np.isfinite(total * scale):
        return float(exact / Fraction(divisor)) * scale
    rest = float(exact - Fraction(total)) * scale
    mean = (Fraction(total * scale) + Fraction(rest)) / Fraction(divisor)
    return float(mean) if mean else total * scale


def mean(sources: list[Array], scale: float, divisor: float) -> Array:
    """Halves in float32 and float32 in float64, in the order of the sources, the quotient rounded at the end."""
    dtype = sources[0].dtype
    with np.errstate(all="ignore"):
        if dtype in INTEGERS:
            total = expected("SUM", sources)
            return np.array([abs(int(x)) // int(divisor) * (1 if x >= 0 else -1) for x in total], dtype)
        numbers = [real_view(x) for x in sources]
        if numbers[0].dtype == np.float64:
            values = [exact_mean(parts, scale, divisor) for parts in zip(*(x.tolist() for x in numbers), strict=True)]
            return np.array(values, np.float64).view(dtype)
        two = len(numbers) <= 2 and divisor in (1, 2)
        wide = np.float32 if dtype in HALVES or two else np.float64
        total = sum((x.astype(wide) for x in numbers[1:]), numbers[0].astype(wide))
        return (total * wide(scale) / wide(divisor)).astype(numbers[0].dtype).view(dtype)


def expected(reduction: str, sources: list[Array], scale: float = 1.0, divisor: float = 1.0) -> Array:
    """In the order of the sources, halves in float32, the scale before the one rounding."""
    dtype = sources[0].dtype
    if reduction == "AVERAGE":
        return mean(sources, scale, divisor)
    numbers = [x.astype(np.float32) if dtype in HALVES else x for x in sources]
    if dtype == BOOL:
        reduction = {"SUM": "LOR", "MAX": "LOR", "PRODUCT": "LAND", "MIN": "LAND"}.get(reduction, reduction)
    function: Any = {
        "SUM": np.add, "MIN": np.minimum, "MAX": np.maximum,
        "PRODUCT": multiply_complex if dtype in COMPLEX else np.multiply,
        "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
        "LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor,
    }[reduction]  # fmt: skip
    with np.errstate(all="ignore"):
        total = numbers[0].astype(bool) if reduction in LOGIC else numbers[0]
        for x in numbers[1:]:
            total = function(total, x)
        if reduction == "SUM" and scale != 1.0:
            total = scaled([real_view(x) for x in numbers], real_view(total), scale).view(total.dtype)
        return total.astype(dtype)


def scaled(numbers: list[Array], total: Array, scale: float) -> Array:
    """The sum times the scale; where the sum alone has left the range, both in a wider type."""
    product = total * total.dtype.type(scale)
    wide = sum(x.astype(np.longdouble) for x in numbers) * total.dtype.type(scale)
    return np.where(np.isfinite(total), product, wide).astype(total.dtype)


def real_view(x: Array) -> Array:
    return x.view(np.float32 if x.dtype == COMPLEX[0] else np.float64) if x.dtype in COMPLEX else x


def assert_same(got: Array, want: Array, what: str = "") -> None:
    """Equal numbers, NaN where there is NaN; the sign of a zero is left to test_sets_agree_in_every_bit."""
    assert got.dtype == want.dtype
    got, want = real_view(got), real_view(want)
    with np.errstate(invalid="ignore"):
        same = (got == want) | ((got != got) & (want != want))
    assert same.all(), f"{what}: {got[~same][:4]} should be {want[~same][:4]} at {np.flatnonzero(~same)[:4]}"


def reductions_of(dtype: np.dtype[Any]) -> list[str]:
    return [reduction for reduction, d in DEFINED if d == dtype]


def label(case: tuple[str, np.dtype[Any]]) -> str:
    return f"{case[0]}-{case[1]}"


def test_reductions_are_defined_for_these_dtypes_alone(build: Any) -> None:
    every = itertools.product([*ARITHMETIC, *ORDER, *BITS, *LOGIC], DTYPES)
    assert {case for case in every if build.defined(*case)} == set(DEFINED)
    assert not build.library.hc_reduction_defined(-1, 0)
    assert not build.library.hc_reduction_defined(0, 15)
    assert not build.library.hc_reduction_defined(12, 0)


@pytest.mark.parametrize("case", DEFINED, ids=label)
def test_reduction_against_numpy(host: Any, case: tuple[str, np.dtype[Any]]) -> None:
    reduction, dtype = case
    rng = np.random.default_rng(1)
    for n, n_from in zip(SIZES, itertools.cycle([2, 3, 1, 4, 7, 2, 5]), strict=False):
        sources = [random_array(rng, dtype, n) for _ in range(n_from)]
        divisor = n_from if reduction == "AVERAGE" else 1
        got = host.reduce(np.empty(n, dtype), sources, reduction, divisor=divisor)
        assert_same(got, expected(reduction, sources, divisor=divisor))


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
@pytest.mark.parametrize("n_from", [*range(1, 12), 24, 96, 100, 500])
def test_the_mean_of_equal_values_is_that_value(host: Any, dtype: np.dtype[Any], n_from: int) -> None:
    """Bit for bit: zeros of two signs, the least number, the largest where its sum fits the accumulation."""
    real = real_view(np.empty(2, dtype)).dtype
    info = ml_dtypes.finfo(real)
    rng = np.random.default_rng(n_from)
    numbers = rng.standard_normal(3000) * 10.0 ** rng.integers(-3, 3, 3000)
    most = info.max if real in (np.float16, np.float32) and n_from > 2 else float(info.max) / n_from / 2
    edges = [0.0, -0.0, np.inf, -np.inf, most, -most, info.smallest_subnormal, info.tiny, -info.tiny, 1.0]
    x = np.append(numbers, np.array(edges, np.float64)).astype(real).view(dtype)
    got = host.reduce(np.empty_like(x), [x] * n_from, "AVERAGE", divisor=n_from)
    assert (bits(got) == bits(x)).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("divisor", [1.5, 2.0, 3.0, 1.25, 7.0, 97.0, 1000.0])
def test_a_mean_whose_sum_is_exact_is_rounded_correctly(host: Any, dtype: np.dtype[Any], divisor: float) -> None:
    rng = np.random.default_rng(10)
    sources = [rng.integers(-40, 40, 3000).astype(dtype) for _ in range(3)]
    exact = sum(x.astype(np.float64) for x in sources) / divisor
    assert_same(host.reduce(np.empty(3000, dtype), sources, "AVERAGE", divisor=divisor), exact.astype(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
@pytest.mark.parametrize("reduction", ["SUM", "AVERAGE"])
def test_scale_comes_before_the_rounding(host: Any, reduction: str, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(2)
    for n, scale in zip(SIZES, itertools.cycle([0.25, 1 / 3, -1e-3, 1024.0]), strict=False):
        sources = [random_array(rng, dtype, n) for _ in range(3)]
        divisor = 3.0 if reduction == "AVERAGE" else 1.0
        got = host.reduce(np.empty(n, dtype), sources, reduction, scale, divisor)
        assert_same(got, expected(reduction, sources, scale, divisor))


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 64])
def test_no_result_is_out_of_range_because_a_sum_is(host: Any, dtype: np.dtype[Any], ranks: int) -> None:
    """Equal values up to the largest there is, in place, beside small ones, zeros, an infinity and a NaN."""
    largest = np.float64(ml_dtypes.finfo(real_view(np.empty(1, dtype)).dtype).max)
    line = [largest, 1, -largest, 0, largest / 2, np.inf, -largest / 3, np.nan] * 9
    x = np.array(line).astype(real_view(np.empty(1, dtype)).dtype).view(dtype)
    for n in (1, 5, len(x)):
        sources = [x[:n].copy() for _ in range(ranks)]
        assert_same(host.reduce(sources[0], sources, "AVERAGE", divisor=float(ranks)), x[:n])
        sources = [x[:n].copy() for _ in range(ranks)]
        quarter = real_view(host.reduce(sources[-1], sources, "SUM", 0.25 / ranks)).astype(np.float64)
        digits = {2: 8, 4: 23, 8: 51}[real_view(x).itemsize]
        np.testing.assert_allclose(quarter, real_view(x[:n]).astype(np.float64) / 4, ranks * 2.0**-digits)
    assert np.isinf(real_view(host.reduce(np.empty_like(x), [x] * ranks, "SUM"))[0])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sum_of_halves_is_rounded_once(host: Any, dtype: np.dtype[Any]) -> None:
    """Against float64: half a unit in the last place, and what 128 float32 additions lose."""
    rng = np.random.default_rng(3)
    sources = [rng.random(1000).astype(dtype) for _ in range(128)]
    exact = sum(x.astype(np.float64) for x in sources)
    got = host.reduce(np.empty(1000, dtype), sources, "SUM").astype(np.float64)
    digits = 11 if dtype == np.float16 else 8
    unit = 2.0 ** (np.floor(np.log2(exact)) - digits + 1)
    assert (np.abs(got - exact) <= unit / 2 + 128 * 2.0**-24 * exact).all()


def with_guards(x: Array, shift: int) -> tuple[Array, Array]:
    """A copy of x that starts `shift` bytes off, and the bytes around it."""
    guarded = np.full(x.nbytes + 256, 0xA5, np.uint8)
    view = guarded[64 + shift : 64 + shift + x.nbytes].view(x.dtype)
    view[:] = x
    return view, guarded


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unaligned_and_nothing_around_is_touched(host: Any, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(4)
    for reduction, n in itertools.product(reductions_of(dtype), (1, 7, 33, 150)):
        sources = [random_array(rng, dtype, n) for _ in range(3)]
        shifted = [with_guards(x, shift)[0] for x, shift in zip(sources, (1, 3, 0), strict=True)]
        to, guarded = with_guards(np.zeros(n, dtype), 5)
        host.reduce(to, shifted, reduction)
        assert_same(to.copy(), expected(reduction, sources), reduction)
        assert (guarded[:69] == 0xA5).all()
        assert (guarded[69 + to.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_result_may_be_a_source(host: Any, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(5)
    for reduction, n, which in itertools.product(reductions_of(dtype), (5, 300), range(3)):
        sources = [random_array(rng, dtype, n) for _ in range(3)]
        want = expected(reduction, sources)
        host.reduce(sources[which], sources, reduction)
        assert_same(sources[which], want, reduction)


@pytest.mark.parametrize("pair", list(itertools.permutations(FLOATS, 2)), ids=lambda p: f"{p[0]}-{p[1]}")
def test_result_of_another_float(host: Any, pair: tuple[np.dtype[Any], np.dtype[Any]]) -> None:
    from_dtype, to_dtype = pair
    rng = np.random.default_rng(6)
    wide = np.float64 if from_dtype == np.float64 else np.float32
    cases = itertools.product(reductions_of(from_dtype), ((1, 2), (100, 1), (600, 3), (1025, 4)))
    for reduction, (n, n_from) in cases:
        sources = [random_array(rng, from_dtype, n) for _ in range(n_from)]
        scale, divisor = (0.375 if reduction in ("SUM", "AVERAGE") else 1.0), (3.0 if reduction == "AVERAGE" else 1.0)
        total = expected("SUM" if reduction == "AVERAGE" else reduction, [x.astype(wide) for x in sources])
        total = mean([total], 1.0, divisor) if reduction == "AVERAGE" else total
        want = host.convert(total, to_dtype, scale)  # test_convert.py has the rounding
        assert_same(host.reduce(np.empty(n, to_dtype), sources, reduction, scale, divisor), want, reduction)


def bits(x: Array) -> Array:
    """As integers, all NaN alike: which of two NaN survives is left to the processor."""
    x = real_view(x).copy()
    if x.dtype in FLOATS:
        x[x != x] = np.nan
    return x.view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sets_agree_in_every_bit(build: Any, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(7)
    for reduction in reductions_of(dtype):
        sources = [random_array(rng, dtype, 1111) for _ in range(5)]
        results = []
        for name in build.sets:
            assert build.select(name) == 0
            results.append(bits(build.reduce(np.empty(1111, dtype), sources, reduction, divisor=5.0)))
        assert all((result == results[0]).all() for result in results), reduction


@pytest.mark.parametrize("reduction", ORDER)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_nan_anywhere_is_the_result_and_the_first_zero_stays(host: Any, reduction: str, dtype: np.dtype[Any]) -> None:
    nan, one = np.full(40, np.nan, dtype), np.ones(40, dtype)
    for sources in ([nan, one], [one, nan], [one, nan, one], [nan, nan]):
        assert np.isnan(host.reduce(np.empty(40, dtype), sources, reduction)).all()
    zero, minus = np.zeros(40, dtype), -np.zeros(40, dtype)
    assert not np.signbit(host.reduce(np.empty(40, dtype), [zero, minus], reduction)).any()
    assert np.signbit(host.reduce(np.empty(40, dtype), [minus, zero], reduction)).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_kind_of_nan_stays_one(host: Any, dtype: np.dtype[Any]) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of signalling NaN
        nan = every[np.isnan(every)].copy()
        for reduction in (*ARITHMETIC, *ORDER):
            for sources in ([nan], [nan, nan], [nan, np.ones_like(nan)], [np.ones_like(nan), nan]):
                assert np.isnan(host.reduce(np.empty_like(nan), sources, reduction)).all()


def test_bool_that_is_not_0_or_1(host: Any) -> None:
    odd = np.array([0, 1, 2, 128, 255] * 20, np.uint8).view(bool)
    for reduction, dtype in DEFINED[:10]:
        assert dtype == BOOL
        got = host.reduce(np.empty(100, bool), [odd, np.ones(100, bool)], reduction).view(np.uint8)
        assert got.max() <= 1


def neutral_of(reduction: str, dtype: DTypeLike) -> Any:
    dtype = np.dtype(dtype)
    if reduction in ("PRODUCT", "LAND"):
        return 1
    if reduction == "BAND":
        return True if dtype == BOOL else ~dtype.type(0)
    if reduction in ORDER:
        low, high = (-np.inf, np.inf) if dtype in FLOATS else (False, True)
        if dtype in INTEGERS:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return high if reduction == "MIN" else low
    return 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_neutral_elements_change_nothing(host: Any, dtype: np.dtype[Any]) -> None:
    x = random_array(np.random.default_rng(8), dtype, 99, special=False)
    for reduction in reductions_of(dtype):
        neutral = host.neutral(dtype, reduction, 99)
        assert_same(neutral, np.full(99, neutral_of(reduction, dtype), dtype), reduction)
        want = x.astype(bool).astype(dtype) if reduction in LOGIC else x
        assert_same(host.reduce(np.empty(99, dtype), [neutral, x], reduction), want, reduction)
        assert host.neutral(dtype, reduction, 0).size == 0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 127, 128, 300, 1 << 40])
def test_integers_divide_towards_zero(host: Any, dtype: np.dtype[Any], divisor: int) -> None:
    info = np.iinfo(dtype)
    x = np.append(random_array(np.random.default_rng(9), dtype, 50), np.array([0, info.min, info.max], dtype))
    want = [int(v) // divisor if v >= 0 else -(-int(v) // divisor) for v in x]
    host.divide(x, divisor)
    assert x.tolist() == want
