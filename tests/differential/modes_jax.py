# SPDX-License-Identifier: Apache-2.0
"""JAX: eager, in jit with the function of a turn reached several times, in scan, and gradients in jit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from differential.modes import Array, Mode, Results, in_turns, placed
from differential.modes_torch import arguments
from differential.programs import DTYPES, Call, Program, weight

import hpccoll.jax as hvd

OPERATIONS = (
    "allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "scatter", "scan", "exscan",
    "sendrecv",
)  # fmt: skip
DERIVED = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")


def apply(call: Call, x: Any, rank: int, size: int) -> Any:
    if call.operation == "sendrecv":
        return hvd.sendrecv(x, (rank + 1) % size, (rank - 1) % size)
    more = arguments(call, rank, size)
    if call.operation in ("scan", "exscan"):
        more = {"op": arguments(Call("allreduce", reduction=call.reduction), rank, size)["op"]}
    if call.operation == "allgather":
        more["rows"] = [call.own_rows(other, size) for other in range(size)]
    if call.operation == "alltoall":
        more["splits"] = call.splits(rank, size)
        more["rows"] = [call.splits(other, size)[rank] for other in range(size)]
    return getattr(hvd, call.operation)(x, name=call.name, **more)


def inputs_of(program: Program, rank: int, size: int, turn: int) -> list[Any]:
    return [jnp.asarray(np.ascontiguousarray(call.given(rank, size, turn))) for call in program.calls]


def array(call: Call, rank: int, result: Any) -> Array | None:
    """A compiled program has arrays of zeros, or of any values, where a rank has no result."""
    absent = call.operation == "reduce" and rank != call.root
    return None if absent or result is None else np.asarray(result)


def arrays(program: Program, rank: int, results: list[Any]) -> list[Array | None]:
    return [array(call, rank, result) for call, result in zip(program.calls, results, strict=True)]


def body(program: Program, rank: int, size: int) -> Callable[..., list[Any]]:
    def run(*inputs: Any) -> list[Any]:
        made = [apply(program.calls[i], inputs[i], rank, size) for i in program.order(rank)]
        return placed(program, rank, made)

    return run


def eager(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    inputs = inputs_of(program, rank, size, turn)
    return arrays(program, rank, [apply(c, x, rank, size) for c, x in zip(program.calls, inputs, strict=True)])


def nested(wrap: Callable[[Any], Any]) -> Callable[[Program, int, int], Results]:
    """One compiled program, in which each turn reaches the same inner function."""

    def run_all(program: Program, rank: int, size: int) -> Results:
        inner = wrap(body(program, rank, size))
        turns = [inputs_of(program, rank, size, turn) for turn in range(program.turns)]
        results = jax.jit(lambda turns: [inner(*inputs) for inputs in turns])(turns)
        return [arrays(program, rank, one) for one in results]

    return run_all


def scanned(program: Program, rank: int, size: int) -> Results:
    run = body(program, rank, size)
    turns = zip(*(inputs_of(program, rank, size, turn) for turn in range(program.turns)), strict=True)
    stacked = [jnp.stack(list(values)) for values in turns]
    _, results = jax.jit(lambda xs: jax.lax.scan(lambda carry, x: (carry, run(*x)), 0, xs))(stacked)
    return [
        arrays(program, rank, [None if each is None else each[turn] for each in results])
        for turn in range(program.turns)
    ]


def derived(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    weights = [jnp.asarray(weight(call, size, rank, turn)) for call in program.calls]

    def loss(inputs: list[Any]) -> Any:
        results = body(program, rank, size)(*inputs)
        return sum((result * w).sum() for result, w in zip(results, weights, strict=True))

    return [np.asarray(gradient) for gradient in jax.jit(jax.grad(loss))(inputs_of(program, rank, size, turn))]


def modes() -> list[Mode]:
    return [
        Mode("JAX, eager", in_turns(eager), OPERATIONS, DTYPES),
        Mode("JAX, jit in jit", nested(jax.jit), OPERATIONS, DTYPES),
        Mode("JAX, checkpoint in jit", nested(jax.checkpoint), OPERATIONS, DTYPES),
        Mode("JAX, scan in jit", scanned, OPERATIONS, DTYPES),
        Mode("JAX, gradients", in_turns(derived), DERIVED, ("float32", "float64"), derives="own"),
    ]
