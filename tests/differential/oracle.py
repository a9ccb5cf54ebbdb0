# SPDX-License-Identifier: Apache-2.0
"""The expected results of a call by MPI's standard and Horovod's rules, computed by NumPy in float64 and int64."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from differential.programs import Array, Call

FOLDS = {
    "SUM": np.add, "AVERAGE": np.add, "MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply,
}  # fmt: skip
TOLERANCE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


def wide(x: Array) -> Array:
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def among_members(call: Call, size: int, of_members: Callable[[Call, int], list[Array | None]]) -> list[Array | None]:
    """Return the result of each rank, from the results of the members; other ranks have none."""
    if call.members is None:
        return of_members(call, size)
    results: list[Array | None] = [None] * size
    for rank, result in zip(call.members, of_members(replace(call, members=None), len(call.members)), strict=True):
        results[rank] = result
    return results


def shares(rows: int, size: int) -> list[int]:
    """Return the rows of each rank, as even as can be: Horovod's rule for a reducescatter."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def cut(x: Array, counts: list[int]) -> list[Array]:
    return np.split(x, np.cumsum(counts)[:-1])


def neutral(call: Call) -> Any:
    """Return rank 0's result of an exscan: docs/reductions.md."""
    integers = np.iinfo(call.dtype) if np.dtype(call.dtype).kind in "iu" else None
    least, largest = (integers.min, integers.max) if integers else (-np.inf, np.inf)
    return {"SUM": 0, "PRODUCT": 1, "MIN": largest, "MAX": least}[call.reduction]


def folded(call: Call, inputs: list[Array], divisor: int) -> Array:
    total = FOLDS[call.reduction].reduce(
        [wide(x) * call.factors[0] if call.factors[0] != 1 else wide(x) for x in inputs]
    )
    total = total / divisor if call.reduction == "AVERAGE" else total
    return total * call.factors[1] if call.factors[1] != 1 else total


def expected(call: Call, size: int, turn: int = 0) -> list[Array | None]:
    """Return the result of each rank; None where a rank has none."""
    return among_members(call, size, lambda inner, count: results(inner, count, turn))


def results(call: Call, size: int, turn: int) -> list[Array | None]:
    inputs = [call.values(rank, size, turn) for rank in range(size)]
    everybody = range(size)
    match call.operation:
        case "allreduce":
            return [folded(call, inputs, size)] * size
        case "reduce":
            return [folded(call, inputs, size) if rank == call.root else None for rank in everybody]
        case "reducescatter":
            return list(cut(folded(call, inputs, size), shares(call.rows, size)))
        case "scan":
            return [folded(call, inputs[: rank + 1], rank + 1) for rank in everybody]
        case "exscan":
            return [
                np.full_like(inputs[0], neutral(call)),
                *(folded(call, inputs[:rank], rank) for rank in range(1, size)),
            ]
        case "allgather":
            return [np.concatenate(inputs)] * size
        case "gather":
            return [np.concatenate(inputs) if rank == call.root else None for rank in everybody]
        case "broadcast":
            return [inputs[call.root]] * size
        case "scatter":
            return list(cut(inputs[call.root], shares(call.rows, size)))
        case "alltoall":
            parts = [cut(inputs[rank], call.splits(rank, size)) for rank in everybody]
            return [np.concatenate([parts[source][rank] for source in everybody]) for rank in everybody]
        case "sendrecv":  # around a ring
            return [inputs[(rank - 1) % size] for rank in everybody]
    raise AssertionError(call.operation)


def gradients(call: Call, size: int, turn: int, convention: str) -> list[Array | None]:
    """Return the gradient of sum(weights * result) for each rank's input, by the conventions of docs/gradients.md.

    "Horovod": with Sum the losses of all ranks count as one, with Average their mean does (horovod/torch/mpi_ops.py,
    horovod/tensorflow/mpi_ops.py, since 0.21). "own": each rank differentiates its own loss (JAX's psum, mpi4jax).
    """
    return among_members(call, size, lambda inner, count: list(backward(inner, count, turn, convention)))


def backward(call: Call, size: int, turn: int, convention: str) -> list[Array]:
    weights = [weight(call, size, rank, turn) * call.factors[0] * call.factors[1] for rank in range(size)]
    own = convention == "own"
    divisor = 1 if own else size
    match call.operation:
        case "allreduce":
            of_sums = weights if own else [np.add.reduce(weights)] * size
            return [of_sum / size if call.reduction == "AVERAGE" else of_sum for of_sum in of_sums]
        case "allgather":
            rows = [call.own_rows(rank, size) for rank in range(size)]
            return list(cut(np.add.reduce(weights) / divisor, rows))
        case "broadcast":
            on_root = np.add.reduce(weights) / divisor
            return [on_root if rank == call.root else np.zeros_like(on_root) for rank in range(size)]
        case "alltoall":
            back = [[call.splits(source, size)[rank] for source in range(size)] for rank in range(size)]
            parts = [cut(weights[rank], back[rank]) for rank in range(size)]
            return [np.concatenate([parts[to][rank] for to in range(size)]) for rank in range(size)]
        case "reducescatter":
            of_sum = np.concatenate(weights) * (1 if own else size)
            return [of_sum / size if call.reduction == "AVERAGE" else of_sum] * size
    raise AssertionError(call.operation)


def weight(call: Call, size: int, rank: int, turn: int) -> Array:
    """Return the factor of a rank's result in the gradient tests."""
    result = expected(call, size, turn)[rank]
    assert result is not None
    return np.random.default_rng([call.seed + 1, rank, turn]).integers(1, 5, result.shape).astype(np.float64)


def difference(call: Call, got: Array | None, want: Array | None) -> str:
    """Describe how a result differs from the expected one; "" if it does not."""
    if want is None or got is None:
        return "" if want is got else f"got {got}, not {want}"
    if got.shape != want.shape:
        return f"got the shape {got.shape}, not {want.shape}"
    dtype = np.dtype(call.dtype)
    if got.dtype != dtype:
        return f"got {got.dtype}, not {dtype}"
    if dtype.kind not in "if" or not dtype.isnative:
        return "" if np.array_equal(got, want) else f"got\n{got}, not\n{want}"
    same = np.allclose(wide(got), want, rtol=TOLERANCE.get(call.dtype, 0), atol=0)
    return "" if same else f"got\n{got}, not\n{want}"
