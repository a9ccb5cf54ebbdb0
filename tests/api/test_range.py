# SPDX-License-Identifier: Apache-2.0
"""Means and scaled sums at both ends of the range of each type, against longdouble: docs/reductions.md has the bounds.

No result is infinite that is in range, and of the smallest numbers no more digits are lost than the page says.
"""

import ml_dtypes
import numpy as np
import pytest

import hpccoll
from hpccoll import AVERAGE, SUM, testing

LARGE = {"float16": 6e4, "bfloat16": 3e38, "float32": 3e38, "float64": 1.7e308}
LARGE |= {"complex64": 3e38, "complex128": 1.7e308}
DTYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in LARGE}


def real(x):
    return x.view({"c8": "f4", "c16": "f8"}.get(x.dtype.str[1:], x.dtype))


def operand(name, rank, n):
    """In turn: large everywhere, of two signs, large beside small, the smallest there are, almost as small, mixed."""
    dtype, large = DTYPES[name], LARGE[name]
    limits = ml_dtypes.finfo(real(np.empty(1, dtype)).dtype)
    smallest, normal = float(limits.smallest_subnormal), float(limits.smallest_normal)
    rng = np.random.default_rng([rank, n])
    parts = 2 * n if dtype.kind == "c" else n
    kinds = [
        np.full(parts, large),
        np.full(parts, large if rank % 2 else -large),
        np.full(parts, large if rank == 1 else smallest),
        rng.integers(-9, 10, parts) * smallest,
        rng.uniform(-2, 2, parts) * normal,
        rng.uniform(-1, 1, parts) * large,
    ]
    return np.choose(np.arange(parts) % 6, kinds).astype(real(np.empty(1, dtype)).dtype).view(dtype)


def check(got, operands, factor, units, smallest_units):
    """`factor` times the sum: so many units of half a last place of the magnitudes, so many of the smallest numbers."""
    limits = ml_dtypes.finfo(real(operands[0]).dtype)
    wide = [real(x).astype(np.longdouble) * np.longdouble(factor) for x in operands]
    most = units * np.longdouble(limits.eps) / 2 * sum(map(abs, wide))
    most += smallest_units * np.longdouble(limits.smallest_subnormal)
    off = np.abs(real(got).astype(np.longdouble) - sum(wide))
    bad = ~(off <= most * (1 + 1e-9))
    assert not bad.any(), f"{got.dtype}: {real(got)[bad][:3]} for {sum(wide)[bad][:3]} at {np.flatnonzero(bad)[:6]}"


def smallest_units(world, op, factor):
    """How many of the smallest numbers a result may be off; one node rounds once.

    Between nodes each node's contribution is rounded, after it was divided by a power of two, and so is the result.
    Where partial sums travel, on three nodes and more, the contributions are divided once more. A factor is one more
    rounding.
    """
    nodes = int(world.allreduce(float(world.local_rank == 0)))
    largest = int(world.allreduce(world.local_size, hpccoll.MAX))
    if op is SUM:
        return (world.size + 1) / 2
    if nodes == 1:
        return 0.5 if factor == 1.0 else 1.0
    node_power, nodes_power = (2 ** (n - 1).bit_length() for n in (largest, nodes))
    again = nodes_power if nodes > 2 else 0
    return nodes / 2 * (1 + again) * node_power / world.size + 0.5 + 0.5 * (factor != 1.0)


def calls(world, x, op, before, after):
    """Each operation that takes a mean or a factor, in each form of a call: the result, and what it is of."""
    size, me, root = world.size, world.rank, world.size - 1
    mine = np.array_split(np.arange(len(x)), size)[me]
    factors = {"op": op, "prescale": before, "postscale": after}
    whole, out = slice(None), np.empty_like(x)
    yield world.allreduce(x, **factors), whole, size
    yield world.allreduce(x, name="range", **factors), whole, size
    yield world.allreduce_async(x, name="later", **factors).wait(), whole, size
    yield world.allreduce(x.copy(), out=out, **factors), whole, size
    for part, where in zip(world.allreduce([x, x[:7]], name="two", **factors), (whole, slice(7)), strict=True):
        yield part, where, size
    yield world.reducescatter(x, name="rows", **factors), mine, size
    yield world.reduce(x, root=root, **factors), whole, size
    plans = [
        world.allreduce_init(x, **factors),
        world.reduce_init(x, root=root, **factors),
        world.reducescatter_init(x, **factors),
    ]
    for plan, where in zip(plans, (whole, whole, mine), strict=True):
        plan.start()
        yield plan.wait(), where, size
        plan.free()


def scans(world, x, op, before, after):
    """The same of prefix reductions: the number of ranks that a result is of, is that of the ranks up to this one."""
    me, factors = world.rank, {"op": op, "prescale": before, "postscale": after}
    if op is SUM:
        yield world.scan(x, **factors), slice(None), me + 1
        before_me = world.exscan(x, **factors)
        yield (before_me if me else None), slice(None), me


FORMS = [(AVERAGE, 1.0, 1.0), (AVERAGE, 0.5, 1.0), (SUM, None, 1.0), (SUM, 0.25, None)]
"""A reduction, prescale and postscale; None: one by the number of ranks."""


def check_all(world, n, forms=FORMS):
    size = world.size
    for name in DTYPES:
        operands = [operand(name, rank, n) for rank in range(size)]
        for op, before, after in forms:
            before, after = (1 / size if factor is None else factor for factor in (before, after))
            factor = before * after / (size if op is AVERAGE else 1)
            for form, smallest in ((calls, smallest_units(world, op, before * after)), (scans, size + 0.5)):
                for got, where, ranks in form(world, operands[world.rank], op, before, after):
                    if got is not None:
                        check(got, [x[where] for x in operands[:ranks]], factor, size + 2, smallest)


def test_both_ends_of_the_range(everywhere):
    everywhere(lambda world: check_all(world, 12))


@pytest.mark.slow
def test_both_ends_of_the_range_in_chunks(everywhere):
    everywhere(lambda world: check_all(world, 9000, FORMS[::2]))


@pytest.mark.parametrize(("algorithm", "nodes"), [("direct", "1+1+2"), ("ring", "1+1+2"), ("stages", "1+1+1+1")])
def test_algorithms_between_nodes(threads, algorithm, nodes):
    testing.run(threads(4, nodes=nodes, algorithm=algorithm), lambda world: check_all(world, 3000, FORMS[:1]))


def test_deterministic_mode(threads):
    testing.run(threads(4, nodes="2+2", deterministic=True), lambda world: check_all(world, 3000, FORMS[:1]))


@pytest.mark.parametrize(("compression", "large"), [("FP16", 6e4), ("BF16", 3e38)])
def test_narrow_between_nodes(threads, compression, large):
    """What 16 bits hold, as it is."""
    chosen = getattr(hpccoll.compression, compression)
    large = float(np.float32(large).astype(np.float16 if compression == "FP16" else ml_dtypes.bfloat16))

    def program(world):
        for dtype in (np.float32, np.float64):
            x = np.array([large, -large if world.rank % 2 else large, 0.25] * 4000, dtype)
            got = world.allreduce(x, AVERAGE, compression=chosen)
            np.testing.assert_array_equal(got, np.array([large, 0.0, 0.25] * 4000, dtype))

    testing.run(threads(4, nodes="2+2"), program)


def test_a_factor_meets_the_smallest_numbers_before_the_division(threads):
    """A third of the smallest float64 is 0; of 2^100 times it, it is not."""

    def program(world):
        x = np.full(5, 5e-324 if world.rank == 0 else 0.0)
        got = world.allreduce(x, AVERAGE, prescale=2.0**100)
        np.testing.assert_allclose(got, 5e-324 * 2.0**100 / 3, 1e-15)

    testing.run(threads(3), program)
