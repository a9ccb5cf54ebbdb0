# SPDX-License-Identifier: Apache-2.0
"""The results of each operation by MPI's standard and Horovod's rules, computed by NumPy in float64 and int64.

An operation that gets a line in RESULTS runs in the modes of NumPy, C, C++ and Fortran: its parameters and traits are
those of bindings/table.toml and ext/core/hc.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from bindings_table import OPERATIONS as BINDINGS

if TYPE_CHECKING:
    from differential.programs import Call

Array = np.ndarray[Any, Any]
Results = Sequence[Array | None]
"""The result of each rank; None where a rank has none."""

OF_PAIRS = ("MINLOC", "MAXLOC")
WHOLE = "LARGEST"
"""A reduction of the program's own that keeps the largest elements of two arrays: it needs whole arrays."""
PAIRS = "f8,i8"
"""A value, and the rank that has it."""
FOLDS = {
    "SUM": np.add, "AVERAGE": np.add, "MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply,
}  # fmt: skip
EPSILON = 1e-5
"""Batch normalization adds it to a variance."""


def wide(x: Array) -> Array:
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def shares(rows: int, size: int) -> list[int]:
    """Return the rows of each rank, as even as can be: Horovod's rule for a reducescatter."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def cut(x: Array, counts: list[int]) -> list[Array]:
    return np.split(x, np.cumsum(counts)[:-1])


def neutral(call: Call) -> Any:
    """Return rank 0's result of an exscan: docs/reductions.md."""
    if call.reduction in OF_PAIRS:
        return np.array((np.inf if call.reduction == "MINLOC" else -np.inf, np.iinfo(np.int64).max), PAIRS)
    integers = np.iinfo(call.dtype) if np.dtype(call.dtype).kind in "iu" else None
    least, largest = (integers.min, integers.max) if integers else (-np.inf, np.inf)
    return {"SUM": 0, "PRODUCT": 1, "MIN": largest, "MAX": least}[call.reduction]


def folded(call: Call, inputs: list[Array], divisor: int) -> Array:
    """Return the reduction of arrays. A mean divides before it adds, so that float64 holds the mean of large values."""
    if call.reduction in OF_PAIRS:
        return pairs(call, np.stack(inputs))
    if call.reduction == WHOLE:
        ordered = np.sort(np.concatenate(inputs, axis=None))[-inputs[0].size :].reshape(inputs[0].shape)
        return ordered if len(inputs) > 1 else inputs[0]  # there is nothing to combine
    factor = call.factors[0] / divisor if call.reduction == "AVERAGE" else call.factors[0]
    total: Array = FOLDS[call.reduction].reduce([wide(x) * factor if factor != 1 else wide(x) for x in inputs])
    return total * call.factors[1] if call.factors[1] != 1 else total


def pairs(call: Call, stacked: Array) -> Array:
    """Return the best values, and of equal ones the least index (MPI's standard on MINLOC and MAXLOC)."""
    result = np.empty(stacked.shape[1:], PAIRS)
    result["f0"] = FOLDS[call.reduction.removesuffix("LOC")].reduce(stacked["f0"])
    last = np.iinfo(np.int64).max
    result["f1"] = np.where(stacked["f0"] == result["f0"], stacked["f1"], last).min(axis=0, initial=last)
    return result


def total(call: Call, inputs: list[Array]) -> Array:
    """Return the reduction over all ranks."""
    return folded(call, inputs, len(inputs))


def on_root(call: Call, inputs: list[Array], result: Array) -> Results:
    return [result if rank == call.root else None for rank in range(len(inputs))]


def scan(call: Call, inputs: list[Array]) -> Results:
    return [folded(call, inputs[: rank + 1], 1) for rank in range(len(inputs))]


def exscan(call: Call, inputs: list[Array]) -> Results:
    return [np.full_like(inputs[0], neutral(call)), *scan(call, inputs[:-1])]


def alltoall(call: Call, inputs: list[Array]) -> Results:
    ranks = range(len(inputs))
    parts = [cut(inputs[rank], call.splits(rank, len(inputs))) for rank in ranks]
    return [np.concatenate([parts[source][rank] for source in ranks]) for rank in ranks]


def normalize(_: Call, inputs: list[Array]) -> Results:
    """Return what batch normalization makes of the rows of all ranks, in training, without weights."""
    rows = np.concatenate([wide(x) for x in inputs])
    return [(wide(x) - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + EPSILON) for x in inputs]


RESULTS: dict[str, Callable[[Call, list[Array]], Results]] = {
    "allreduce": lambda call, inputs: [total(call, inputs)] * len(inputs),
    "allgather": lambda _, inputs: [np.concatenate(inputs)] * len(inputs),
    "broadcast": lambda call, inputs: [inputs[call.root]] * len(inputs),
    "reducescatter": lambda call, inputs: cut(total(call, inputs), shares(call.rows, len(inputs))),
    "alltoall": alltoall,
    "reduce": lambda call, inputs: on_root(call, inputs, total(call, inputs)),
    "gather": lambda call, inputs: on_root(call, inputs, np.concatenate(inputs)),
    "scatter": lambda call, inputs: cut(inputs[call.root], shares(call.rows, len(inputs))),
    "scan": scan,
    "exscan": exscan,
    "sendrecv": lambda _, inputs: [inputs[-1], *inputs[:-1]],  # around a ring
}
NORMALIZE = "normalize"
"""A layer that normalizes the rows of all ranks."""


def having(*parameters: str) -> tuple[str, ...]:
    """Return the operations that have one of some parameters of bindings/table.toml."""
    return tuple(name for name in RESULTS if not {*parameters}.isdisjoint(BINDINGS[name].parameters))


OPERATIONS = tuple(RESULTS)
REDUCES, ROOTED = having("op"), having("root")
OF_ROWS = tuple(name for name in having("out") if name != "sendrecv")
"""They count, cut or concatenate rows, so that an array without dimensions has no meaning."""
OF_OWN_ROWS = having("counts")
"""Ranks may give different numbers of rows."""
SPLIT = tuple(name for name in having("splits") if name not in ROOTED)
"""Each rank says how many rows each one gets."""
PLANNED = tuple(name for name in RESULTS if "init" in BINDINGS[name].forms or name == "sendrecv")
PREFIX = tuple(name for name in RESULTS if "PREFIX" in BINDINGS[name].traits)
"""They have no mean."""
