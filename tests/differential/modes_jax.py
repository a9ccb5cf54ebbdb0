# SPDX-License-Identifier: Apache-2.0
"""JAX: eager, in jit with the function of a turn reached several times, in scan, and gradients in jit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from differential import oracle, process_sets
from differential.modes import Array, Mode, Results, in_turns, placed
from differential.modes_numpy import neighbours
from differential.modes_torch import arguments, reduction
from differential.programs import Abilities, Call, Program, Unit

import hpccoll.jax as hvd

OPERATIONS = (
    "allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "scatter", "scan", "exscan",
    "sendrecv",
)  # fmt: skip
DERIVED = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
GROUPED = ("allreduce",)


def apply(unit: Unit, inputs: list[Any]) -> list[Any]:
    call, more = unit.calls[0], arguments(unit)
    if call.operation == "sendrecv":
        to, source = (process_sets.global_rank(unit.members, each) for each in neighbours(unit))
        return [hvd.sendrecv(inputs[0], to, source, process_set=more["process_set"])]
    if unit.is_group:
        return list(hvd.grouped_allreduce(inputs, **more))
    if call.operation in ("scan", "exscan"):
        more["op"] = reduction(call)
    if call.operation == "allgather":
        more["rows"] = [call.own_rows(other, unit.size) for other in range(unit.size)]
    if call.operation == "alltoall":
        more["splits"] = call.splits(unit.rank, unit.size)
        more["rows"] = [call.splits(other, unit.size)[unit.rank] for other in range(unit.size)]
    return [getattr(hvd, call.operation)(inputs[0], **more)]


def inputs_of(units: list[Unit], turn: int) -> list[list[Any]]:
    return [[jnp.asarray(call.values(unit.rank, unit.size, turn)) for call in unit.calls] for unit in units]


def array(call: Call, unit: Unit, result: Any) -> Array | None:
    """Return a result, or None where a rank has none: a compiled program has an array with any values there."""
    absent = call.operation == "reduce" and unit.rank != call.root
    return None if absent or result is None else np.asarray(result)


def arrays(program: Program, units: list[Unit], results: list[list[Any]]) -> list[Array | None]:
    made = [
        (unit, [array(call, unit, one) for call, one in zip(unit.calls, each, strict=True)])
        for unit, each in zip(units, results, strict=True)
    ]
    return placed(program, made)


def body(units: list[Unit]) -> Callable[..., list[list[Any]]]:
    return lambda *inputs: [apply(unit, each) for unit, each in zip(units, inputs, strict=True)]


def eager(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    units = program.units(rank, size)
    return arrays(program, units, body(units)(*inputs_of(units, turn)))


def nested(wrap: Callable[[Any], Any]) -> Callable[[Program, int, int], Results]:
    """Make a mode with one compiled program, in which each turn calls the same inner function."""

    def run_all(program: Program, rank: int, size: int) -> Results:
        units = program.ordered(rank, size)
        inner = wrap(body(units))
        turns = [inputs_of(units, turn) for turn in range(program.turns)]
        results = jax.jit(lambda turns: [inner(*inputs) for inputs in turns])(turns)
        return [arrays(program, units, one) for one in results]

    return run_all


def scanned(program: Program, rank: int, size: int) -> Results:
    units = program.ordered(rank, size)
    turns = [inputs_of(units, turn) for turn in range(program.turns)]
    stacked = jax.tree.map(lambda *values: jnp.stack(values), *turns)
    run = body(units)
    _, results = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c, run(*x)), 0, xs, program.turns))(stacked)
    return [
        arrays(program, units, jax.tree.map(lambda each, turn=turn: each[turn], results))
        for turn in range(program.turns)
    ]


def late_zero() -> Any:
    """Return 0, after some milliseconds of computing."""
    square = jax.lax.fori_loop(0, 10, lambda _, m: jnp.minimum(m @ m, 1.0), jnp.ones((200, 200), jnp.float32))
    return square[0, 0] - 1


def jit_and_eager(program: Program, rank: int, size: int) -> Results:
    """Make each second call in a compiled program that computes first, the others outside."""
    units = program.units(rank, size)
    made = []
    for turn in range(program.turns):
        results = []
        for unit, inputs in zip(units, inputs_of(units, turn), strict=True):
            run = body([unit])
            compiled = jax.jit(lambda inputs, run=run: run([x + late_zero().astype(x.dtype) for x in inputs]))
            results.append((compiled if unit.places[0] % 2 == 0 else run)(inputs)[0])
        made.append(arrays(program, units, results))
    return made


def dropped(program: Program, rank: int, size: int) -> Results:
    """Make the calls once more than needed; rank 0 does not use the results."""
    units = program.units(rank, size)
    run = body(units)

    def whole(turns: list[Any]) -> Any:
        more = run(*turns[0])
        return [run(*inputs) for inputs in turns], None if rank == 0 else more

    results, _ = jax.jit(whole)([inputs_of(units, turn) for turn in range(program.turns)])
    return [arrays(program, units, one) for one in results]


def of_trees(program: Program, rank: int, size: int) -> Results:
    """Reduce a tree of gradients for each call, all with the default name."""
    units = program.units(rank, size)

    def one(unit: Unit, inputs: list[Any]) -> Any:
        more = arguments(unit)
        more.pop("name")
        return hvd.allreduce_gradients(inputs, **more)

    def whole(turns: list[Any]) -> Any:
        return [[one(unit, each) for unit, each in zip(units, inputs, strict=True)] for inputs in turns]

    results = jax.jit(whole)([inputs_of(units, turn) for turn in range(program.turns)])
    return [arrays(program, units, each) for each in results]


def derived(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    units = program.ordered(rank, size)
    weights = [[oracle.weight(call, unit.size, unit.rank, turn) for call in unit.calls] for unit in units]

    def loss(inputs: list[list[Any]]) -> Any:
        products = jax.tree.map(lambda result, w: (result * w).sum(), body(units)(*inputs), weights)
        return sum(jax.tree.leaves(products), jnp.zeros(()))

    gradients = jax.jit(jax.grad(loss))(inputs_of(units, turn))
    return placed(program, zip(units, jax.tree.map(np.asarray, gradients), strict=True))


def modes() -> list[Mode]:
    can = Abilities(OPERATIONS, grouped=GROUPED, misuses=("a reduction as the root", "no reduction"))
    messages = Abilities(("sendrecv", "allreduce"), grouped=GROUPED)
    derives = Abilities(DERIVED, ("float32", "float64"), GROUPED, derives="own")
    return [
        Mode("JAX, eager", in_turns(eager), can),
        Mode("JAX, jit in jit", nested(jax.jit), can),
        Mode("JAX, checkpoint in jit", nested(jax.checkpoint), can),
        Mode("JAX, scan in jit", scanned, Abilities(OPERATIONS, grouped=GROUPED, empty=False)),
        Mode("JAX, jit and eager in turn", jit_and_eager, messages),
        Mode("JAX, results that rank 0 drops", dropped, replace(can, disagrees=False)),
        Mode("JAX, allreduce_gradients", of_trees, replace(can, operations=("allreduce",), misuses=("no reduction",))),
        Mode("JAX, gradients", in_turns(derived), derives),
    ]
