# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: eager, in tf.function, compiled by XLA, in sessions; and gradients eager and in tf.function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from differential.modes import Array, Mode, Results, in_turns, placed
from differential.modes_torch import arguments
from differential.programs import DTYPES, Call, Program, weight

import hpccoll.tensorflow as hvd

OPERATIONS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
COMPILED = ("allreduce", "broadcast")
"""What programs of XLA have."""


def apply(call: Call, x: Any, rank: int, size: int) -> Any:
    more = {"splits": call.splits(rank, size)} if call.operation == "alltoall" else {}
    result = getattr(hvd, call.operation)(x, name=call.name, **arguments(call, rank, size), **more)
    return result[0] if call.operation == "alltoall" else result


def inputs_of(program: Program, rank: int, size: int, turn: int) -> list[Array]:
    return [np.ascontiguousarray(call.given(rank, size, turn)) for call in program.calls]


def body(program: Program, rank: int, size: int) -> Callable[..., Any]:
    def run(*inputs: Any) -> list[Any]:
        return [apply(program.calls[i], inputs[i], rank, size) for i in program.order(rank)]

    return run


def eager(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    inputs = map(tf.constant, inputs_of(program, rank, size, turn))
    return [apply(call, x, rank, size).numpy() for call, x in zip(program.calls, inputs, strict=True)]


def in_function(compiled: bool) -> Callable[[Program, int, int], Results]:
    """All turns in one program: the function of a turn is reached once for each."""

    def run_all(program: Program, rank: int, size: int) -> Results:
        inner = tf.function(body(program, rank, size), jit_compile=compiled)
        outer = tf.function(lambda turns: [inner(*inputs) for inputs in turns], jit_compile=compiled)
        turns = [list(map(tf.constant, inputs_of(program, rank, size, turn))) for turn in range(program.turns)]
        return [placed(program, rank, [x.numpy() for x in results]) for results in outer(turns)]

    return run_all


def session(program: Program, rank: int, size: int) -> Results:
    with tf.Graph().as_default(), tf.compat.v1.Session() as running:
        first = inputs_of(program, rank, size, 0)
        given = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in first]
        results = body(program, rank, size)(*given)
        made = [
            running.run(results, dict(zip(given, inputs_of(program, rank, size, turn), strict=True)))
            for turn in range(program.turns)
        ]
    return [placed(program, rank, one) for one in made]


def derived(traced: bool) -> Callable[[Program, int, int, int], list[Array | None]]:
    def run(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
        def loss(*inputs: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                total = tf.zeros((), tf.float64)
                for i in program.order(rank):
                    result = apply(program.calls[i], inputs[i], rank, size)
                    weights = weight(program.calls[i], size, rank, turn)
                    total += tf.reduce_sum(tf.cast(result, tf.float64) * weights)
            return tape.gradient(total, inputs)

        inputs = list(map(tf.constant, inputs_of(program, rank, size, turn)))
        return [gradient.numpy() for gradient in (tf.function(loss) if traced else loss)(*inputs)]

    return run


def modes() -> list[Mode]:
    real = ("float32", "float64")
    return [
        Mode("TensorFlow, eager", in_turns(eager), OPERATIONS, DTYPES),
        Mode("TensorFlow, tf.function", in_function(compiled=False), OPERATIONS, DTYPES),
        Mode("TensorFlow, XLA", in_function(compiled=True), COMPILED, DTYPES),
        Mode("TensorFlow, session", session, OPERATIONS, DTYPES),
        Mode("TensorFlow, gradients", in_turns(derived(traced=False)), OPERATIONS, real, derives="Horovod"),
        Mode(
            "TensorFlow, gradients in tf.function", in_turns(derived(traced=True)), OPERATIONS, real,
            derives="Horovod",
        ),
    ]  # fmt: skip
