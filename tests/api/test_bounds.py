# SPDX-License-Identifier: Apache-2.0
"""The errors of results stay within the bounds of the table in docs/reductions.md."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hpccoll
from hpccoll import testing

PAGE = Path(__file__).parents[2] / "docs" / "reductions.md"
HALF_UNITS = {
    "float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53, "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}  # fmt: skip
EXACTLY = {
    hpccoll.SUM: lambda x, p: x.sum(0),
    hpccoll.AVERAGE: lambda x, p: x.sum(0) / p,
    hpccoll.PRODUCT: lambda x, p: x.prod(0),
}


def bounds() -> dict[tuple[str, str], str]:
    """The table's cells, by dtype and reduction."""
    lines = re.search(r"generated: reductions -->\n(.*?)<!-- end", PAGE.read_text(), re.DOTALL)[1].splitlines()
    header, _, *rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return {(row[0], name): cell for row in rows for name, cell in zip(header[1:], row[1:], strict=True)}


def value(bound: str, p: int, u: float, s: int = 1) -> float:
    formula = re.sub(r"(?<=[\dp)])(?=[(uv])", "*", bound.replace("√5", "5**0.5*"))
    return float(eval(formula, {"p": p, "u": u, "v": 2.0**-24, "s": s}))


def inputs(dtype: np.dtype, p: int) -> np.ndarray:
    values = np.random.default_rng(p).uniform(0.5, 1.5, (p, 2, 5000))
    return (values[:, 0] + 1j * values[:, 1] if dtype.kind == "c" else values[:, 0]).astype(dtype)


@pytest.mark.parametrize("op", EXACTLY, ids=lambda op: op.name)
@pytest.mark.parametrize("name", HALF_UNITS)
def test_within_the_bound(everywhere, name, op):
    everywhere(lambda world: check(world, name, op))


def check(world, name, op, stages=1):
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    wide = np.clongdouble if dtype.kind == "c" else np.longdouble
    given = inputs(dtype, world.size)
    got = world.allreduce(given[world.rank], op).astype(wide)
    exact = EXACTLY[op](given.astype(wide), world.size)
    error = np.abs(got - exact) / np.abs(EXACTLY[op](np.abs(given.astype(wide)), world.size))
    limit = value(bounds()[name, op.name], world.size, HALF_UNITS[name], stages)
    assert error.max() <= limit, (float(error.max()), limit)
    assert world.size == 1 or error.max() > limit / 50, "a bound so far from what happens says nothing"
    return float(error.max() / HALF_UNITS[name])


@pytest.mark.parametrize("op", [hpccoll.SUM, hpccoll.AVERAGE], ids=lambda op: op.name)
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_in_stages(threads, name, op):
    """Eight nodes in stages of two round once per stage; exact sums round once."""

    def error(**knobs):
        return testing.run(threads(8, nodes="8", **knobs), lambda world: check(world, name, op, 3))[0]

    in_stages = error(algorithm="stages", latency_bytes=1)
    exact = error(algorithm="stages", latency_bytes=1, exact_sums=True)
    assert exact <= 1.1 < in_stages


def test_all_else_is_exact():
    floats = {(name, op.name) for name in HALF_UNITS for op in EXACTLY}
    assert {cell for key, cell in bounds().items() if key not in floats} == {"exact", ""}
