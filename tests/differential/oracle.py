# SPDX-License-Identifier: Apache-2.0
"""The expected results and gradients of a call, and how a result differs from them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from differential.operations import NORMALIZE, RESULTS, Array, Results, cut, normalize, wide
from differential.programs import Abilities, Call

TOLERANCE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


def among_members(call: Call, size: int, of_members: Callable[[Call, int], Results]) -> list[Array | None]:
    """Return the result of each rank, from the results of the members; other ranks have none."""
    if call.members is None:
        return of_members(call, size)
    results: list[Array | None] = [None] * size
    for rank, result in zip(call.members, of_members(replace(call, members=None), len(call.members)), strict=True):
        results[rank] = result
    return results


def expected(call: Call, size: int, turn: int = 0) -> list[Array | None]:
    """Return the result of each rank; None where a rank has none."""

    def of_members(inner: Call, count: int) -> Results:
        return results(inner, [inner.values(rank, count, turn) for rank in range(count)])

    return among_members(call, size, of_members)


def results(call: Call, inputs: list[Array]) -> Results:
    """Return the result of each rank, from their inputs."""
    return normalize(call, inputs) if call.operation == NORMALIZE else RESULTS[call.operation](call, inputs)


def gradients(call: Call, size: int, turn: int, convention: str) -> list[Array | None]:
    """Return the gradient of sum(weights * result) for each rank's input, by the conventions of docs/gradients.md.

    "Horovod": with Sum the losses of all ranks count as one, with Average their mean does (horovod/torch/mpi_ops.py,
    horovod/tensorflow/mpi_ops.py, since 0.21). "own": each rank differentiates its own loss (JAX's psum, mpi4jax).
    """
    return among_members(call, size, lambda inner, count: backward(inner, weights_of(inner, count, turn), convention))


def second_gradients(call: Call, size: int, turn: int) -> list[Array | None]:
    """Return the gradient of sum(vectors * g) for each rank's input, by Horovod's conventions.

    g is the gradient of sum(weights * result ** 2) / 2. It is B(weights * F(x)), where F is the operation and B its
    derivative, both linear; and the derivative of B is F, divided as B is for allgather and broadcast.
    """

    def of_members(inner: Call, count: int) -> Results:
        divisor = count if inner.operation in ("allgather", "broadcast") else 1
        through = results(inner, [vector(inner, count, rank, turn) for rank in range(count)])
        weighted = zip(weights_of(inner, count, turn), through, strict=True)
        return backward(inner, [w * each / divisor for w, each in weighted if each is not None], "Horovod")

    return among_members(call, size, of_members)


def weights_of(call: Call, size: int, turn: int) -> list[Array]:
    return [weight(call, size, rank, turn) for rank in range(size)]


def backward(call: Call, weights: list[Array], convention: str) -> list[Array]:
    """Return the derivative of an operation, for gradients of its results."""
    size, own = len(weights), convention == "own"
    weights = [each * call.factors[0] * call.factors[1] for each in weights]
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


def vector(call: Call, size: int, rank: int, turn: int) -> Array:
    """Return the factor of a rank's first gradient in the tests of second ones."""
    shape = call.shape(rank, size)
    return np.random.default_rng([call.seed + 2, rank, turn]).integers(1, 5, shape).astype(np.float64)


def wanted(call: Call, size: int, turn: int, can: Abilities) -> list[Array | None]:
    """Return the expected results of a mode: results, gradients, or gradients of gradients."""
    if can.twice:
        return second_gradients(call, size, turn)
    return gradients(call, size, turn, can.derives) if can.derives else expected(call, size, turn)


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
    near_zero = 1e-3 if call.operation == NORMALIZE else 0.0
    same = np.allclose(wide(got), want, rtol=TOLERANCE.get(call.dtype, 0), atol=near_zero)
    return "" if same else f"got\n{got}, not\n{want}"
