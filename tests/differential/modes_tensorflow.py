# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: eager, in tf.function, compiled by XLA, in sessions; gradients; training."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from differential import oracle, process_sets
from differential.modes import Array, Mode, Results, in_turns, placed
from differential.modes_torch import GROUPED, REDUCTIONS, arguments
from differential.operations import EPSILON, NORMALIZE
from differential.programs import Abilities, Program, Unit

import hpccoll.tensorflow as hvd

OPERATIONS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
COMPILED = ("allreduce", "broadcast")
"""The features of programs of XLA."""


def apply(unit: Unit, inputs: list[Any]) -> list[Any]:
    operation = unit.calls[0].operation
    if unit.is_group:
        return list(getattr(hvd, f"grouped_{operation}")(inputs, **arguments(unit)))
    more = {"splits": unit.calls[0].splits(unit.rank, unit.size)} if operation == "alltoall" else {}
    result = getattr(hvd, operation)(inputs[0], **arguments(unit), **more)
    return [result[0] if operation == "alltoall" else result]


def inputs_of(units: list[Unit], turn: int) -> list[list[Array]]:
    return [[call.values(unit.rank, unit.size, turn) for call in unit.calls] for unit in units]


def constants_of(units: list[Unit], turn: int) -> list[list[Any]]:
    return [[tf.constant(x) for x in inputs] for inputs in inputs_of(units, turn)]


def body(units: list[Unit]) -> Callable[..., Any]:
    return lambda inputs: [apply(unit, each) for unit, each in zip(units, inputs, strict=True)]


def arrays(program: Program, units: list[Unit], results: list[list[Any]]) -> list[Array | None]:
    return placed(program, zip(units, [[np.asarray(x) for x in each] for each in results], strict=True))


def eager(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    units = program.units(rank, size)
    return arrays(program, units, body(units)(constants_of(units, turn)))


def in_function(program: Program, rank: int, size: int) -> Results:
    """Run all turns in one program, which calls the function of a turn once for each."""
    units = program.ordered(rank, size)
    inner = tf.function(body(units))
    outer = tf.function(lambda turns: [inner(inputs) for inputs in turns])
    results = outer([constants_of(units, turn) for turn in range(program.turns)])
    return [arrays(program, units, each) for each in results]


def compiled(program: Program, rank: int, size: int) -> Results:
    """Run a program with a separate function for each turn, because XLA does not know places of calls (decision 61)."""
    units = program.ordered(rank, size)
    one_turn = body(units)
    outer = tf.function(lambda turns: [one_turn(inputs) for inputs in turns], jit_compile=True)
    results = outer([constants_of(units, turn) for turn in range(program.turns)])
    return [arrays(program, units, each) for each in results]


def session(program: Program, rank: int, size: int) -> Results:
    units = program.ordered(rank, size)
    with tf.Graph().as_default(), tf.compat.v1.Session() as running:
        first = inputs_of(units, 0)
        given = [[tf.compat.v1.placeholder(x.dtype, x.shape) for x in inputs] for inputs in first]
        results = body(units)(given)
        made = []
        for turn in range(program.turns):
            feeds = zip(tf.nest.flatten(given), tf.nest.flatten(inputs_of(units, turn)), strict=True)
            made.append(running.run(results, dict(feeds)) if units else [])
    return [arrays(program, units, one) for one in made]


def session_with_variables(program: Program, rank: int, size: int) -> Results:
    """Broadcast variables in place; the returned tensors must be the new values."""
    units = program.ordered(rank, size)
    with tf.Graph().as_default(), tf.compat.v1.Session() as running:
        first = inputs_of(units, 0)
        given = [[tf.compat.v1.placeholder(x.dtype, x.shape) for x in inputs] for inputs in first]
        variables = [[tf.compat.v1.Variable(np.zeros_like(x)) for x in inputs] for inputs in first]
        pairs = zip(tf.nest.flatten(variables), tf.nest.flatten(given), strict=True)
        assigned = [variable.assign(value) for variable, value in pairs]
        results = [hvd.broadcast_(each, **arguments(unit)) for unit, each in zip(units, variables, strict=True)]
        running.run(tf.compat.v1.global_variables_initializer())
        made = []
        for turn in range(program.turns):
            feeds = zip(tf.nest.flatten(given), tf.nest.flatten(inputs_of(units, turn)), strict=True)
            running.run(assigned, dict(feeds))
            made.append(running.run(results) if units else [])
    return [arrays(program, units, one) for one in made]


def taped(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    """Make the arrays the gradients of variables without a name, with a DistributedGradientTape for each call."""
    units = program.units(rank, size)
    constants = constants_of(units, turn)
    variables = [[tf.Variable(tf.zeros_like(x)) for x in each] for each in constants]

    def one(unit: Unit, weights: list[Any], own: list[Any]) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = sum(tf.cast(tf.reduce_sum(v * w), tf.float64) for v, w in zip(own, weights, strict=True))
        op, members = REDUCTIONS[unit.calls[0].reduction], process_sets.process_set_of(unit.members)
        return list(hvd.DistributedGradientTape(tape, op=op, process_set=members).gradient(loss, own))

    @tf.function
    def all_of_them() -> list[list[Any]]:
        return [one(*each) for each in zip(units, constants, variables, strict=True)]

    return arrays(program, units, all_of_them())


def normalized(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    units = program.units(rank, size)
    results = []
    for unit, inputs in zip(units, inputs_of(units, turn), strict=True):
        how = {"epsilon": EPSILON, "center": False, "scale": False, "dtype": unit.calls[0].dtype}
        results.append([hvd.SyncBatchNormalization(**how)(x, training=True) for x in inputs])
    return arrays(program, units, results)


def derived(traced: bool) -> Callable[[Program, int, int, int], list[Array | None]]:
    def run(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
        units = program.ordered(rank, size) if traced else program.units(rank, size)

        def loss(inputs: list[list[Any]]) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                total = tf.zeros((), tf.float64)
                for unit, each in zip(units, inputs, strict=True):
                    for call, result in zip(unit.calls, apply(unit, each), strict=True):
                        weights = oracle.weight(call, unit.size, unit.rank, turn)
                        total += tf.reduce_sum(tf.cast(result, tf.float64) * weights)
            return tape.gradient(total, inputs)

        return arrays(program, units, (tf.function(loss) if traced else loss)(constants_of(units, turn)))

    return run


def modes() -> list[Mode]:
    can = Abilities(OPERATIONS, grouped=GROUPED, misuses=("a reduction as the root", "no reduction"))
    derives = Abilities(OPERATIONS, ("float32", "float64"), GROUPED, derives="Horovod")
    same = replace(derives, sets=False)  # eager derivatives need the same steps on all ranks (docs/with-tensorflow.md)
    trains = Abilities(
        ("allreduce",), derives.dtypes, GROUPED, reductions=("AVERAGE", "SUM"), scaled=False, disagrees=False
    )
    return [
        Mode("TensorFlow, eager", in_turns(eager), can),
        Mode("TensorFlow, tf.function", in_function, can),
        Mode("TensorFlow, XLA", compiled, Abilities(COMPILED, grouped=("allreduce",))),
        Mode("TensorFlow, session", session, can),
        Mode("TensorFlow, session with variables", session_with_variables, Abilities(("broadcast",))),
        Mode("TensorFlow, gradients", in_turns(derived(traced=False)), same),
        Mode("TensorFlow, gradients in tf.function", in_turns(derived(traced=True)), derives),
        Mode("TensorFlow, tapes in tf.function", in_turns(taped), trains),
        Mode(
            "TensorFlow, SyncBatchNormalization", in_turns(normalized),
            replace(trains, operations=(NORMALIZE,), empty=False, sets=False),
        ),
    ]  # fmt: skip
