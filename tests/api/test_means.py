# SPDX-License-Identifier: Apache-2.0
"""Means and factors, to the last bit: docs/reductions.md says where each rounding is."""

from functools import reduce

import ml_dtypes
import numpy as np
import pytest

import hpccoll
from hpccoll import _core, testing

NAMES = [name for code, name in enumerate(_core.DTYPES) if _core.reduction_defined(hpccoll.AVERAGE.code, code)]
DTYPES = [np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in NAMES]


def whole_numbers(dtype, rank):
    """Small ones, whose sums are exact in any order."""
    rng = np.random.default_rng(rank)
    low = 0 if dtype.kind == "u" else -2
    numbers = rng.integers(low, 3, (2, 40_000))
    return (numbers[0] + 1j * numbers[1] if dtype.kind == "c" else numbers[0]).astype(dtype)


def means(x, world):
    """The mean by each operation that reduces: of the whole, of this rank's rows, of the root, of a group."""
    name, share = "mean", np.array_split(np.arange(x.size), world.size)[world.rank]
    yield world.allreduce(x, hpccoll.AVERAGE, name=name), np.arange(x.size)
    yield world.reducescatter(x, hpccoll.AVERAGE, name=name), share
    group = world.allreduce([x, x[:7]], hpccoll.AVERAGE, name=name)
    yield from zip(group, (np.arange(x.size), np.arange(7)), strict=True)
    root = world.reduce(x, op=hpccoll.AVERAGE, root=world.size - 1, name=name)
    if root is not None:
        yield root, np.arange(x.size)


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8)


@pytest.mark.parametrize("elements", [10, 40_000])
def test_the_mean_of_equal_values_is_that_value(everywhere, elements):
    """Bit for bit, where nodes have a power of two of ranks, or there is one node.

    Between nodes that are uneven, what is too small for float16's precision may lose half a unit.
    """

    def program(world):
        rng = np.random.default_rng(elements)
        for dtype in [dtype for dtype in DTYPES if dtype.kind not in "iu"]:
            numbers = rng.standard_normal(elements) * 10.0 ** rng.integers(-3, 4, elements)
            numbers[np.abs(numbers) < 2.0**-10] = 1.0
            x = (numbers + 1j * numbers[::-1] if dtype.kind == "c" else numbers).astype(dtype)
            for mean, where in means(x, world):
                np.testing.assert_array_equal(bits(mean), bits(x[where]), str(dtype))

    everywhere(program)


def test_a_mean_whose_sum_is_exact_is_rounded_once(everywhere):
    def program(world):
        for dtype in DTYPES:
            parts = [whole_numbers(dtype, r) for r in range(world.size)]
            wide = np.complex128 if dtype.kind == "c" else np.float64
            exact = sum(part.astype(wide) for part in parts)
            exact = (exact.view(np.float64) / world.size).view(wide)
            exact = np.trunc(exact) if dtype.kind in "iu" else exact
            for mean, where in means(parts[world.rank], world):
                np.testing.assert_array_equal(mean, exact.astype(dtype)[where], str(dtype))

    everywhere(program)


def test_compressed_means_of_equal_values(everywhere):
    """What 16 bits hold stays as it is; what they do not hold is rounded as one value is."""

    def program(world):
        x = np.random.default_rng(5).uniform(0.001, 1.0, 40_000).astype(np.float32)
        got = world.allreduce(x, hpccoll.AVERAGE, compression=hpccoll.compression.FP16)
        between_nodes = world.local_size < world.size
        np.testing.assert_array_equal(got, x.astype(np.float16).astype(np.float32) if between_nodes else x)

    everywhere(program)


def in_steps_of_halves(parts, factor):
    """What a library gives that multiplies each value, and rounds it and each partial sum to float16."""
    scaled = [(part.astype(np.float32) * np.float32(factor)).astype(np.float16) for part in parts]
    return reduce(np.add, scaled)


@pytest.mark.parametrize("factor", [1 / 3, 0.1, 3.0, 7.5])
def test_a_factor_of_halves_is_rounded_once_on_a_node(threads, factor):
    """Never further from the truth than a result that is rounded at each step, and apart from it by these steps."""
    parts = [np.random.default_rng(r).standard_normal(20_000).astype(np.float16) for r in range(3)]
    worlds = threads(3)

    def program(world):
        return world.allreduce(parts[world.rank], prescale=factor)

    got = testing.run(worlds, program)[0]
    exact = sum(part.astype(np.float64) for part in parts) * factor
    stepwise = in_steps_of_halves(parts, factor).astype(np.float64)
    half_unit = np.spacing(np.abs(got)).astype(np.float64) / 2
    ours = np.abs(got.astype(np.float64) - exact)
    assert (ours <= half_unit * 1.001).all()
    assert (ours <= np.abs(stepwise - exact) * 1.001 + half_unit * 1e-3).all()
    size = sum(np.abs(part.astype(np.float64)) for part in parts) * factor
    assert (np.abs(got - stepwise) <= 6 * 2.0**-11 * size + 2.0**-24).all()
