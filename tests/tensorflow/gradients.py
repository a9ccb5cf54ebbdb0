"""The derivatives of all operations, eager, in tf.function, in sessions and under XLA, against docs/gradients.md."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import hpccoll.tensorflow as hvd
from hpccoll.tensorflow import xla

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradient_table

hvd.init()
rank, size = hvd.rank(), hvd.size()
CALLS = gradient_table.calls(hvd)


def weighted(result):
    n = int(np.prod(result.shape)) if result.shape.is_fully_defined() else None
    with tf.init_scope():
        weights = tf.constant(gradient_table.weights(rank, n or size * size))
    return tf.reduce_sum(result * weights[: tf.size(result)])


def with_a_tape(call):
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = weighted(call(x))
        return tape.gradient(loss, x)

    return gradient


def in_a_session(call):
    def gradient(x):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            y = tf.constant(x.numpy())
            weights = tf.constant(gradient_table.weights(rank, size * size))
            result = call(y)
            return session.run(tf.gradients(tf.reduce_sum(result * weights[: tf.size(result)]), y)[0])

    return gradient


MODES = {
    "eager": with_a_tape,
    "function": lambda call: tf.function(with_a_tape(call)),
    "session": in_a_session,
    "compiled": lambda call: tf.function(with_a_tape(call), jit_compile=True),
}


def compare(mode, operation, formula):
    x = tf.range(1.0, size + 1, dtype=tf.float64)
    found = MODES[mode](CALLS[operation])(x)
    expected = gradient_table.expected(formula, operation, rank, size)
    assert np.allclose(found, expected), (mode, operation, np.array(found), expected)


def check_adasum():
    """The gradient is combined like the tensor, as in Horovod."""
    if size & (size - 1):
        return
    g = tf.constant(gradient_table.weights(rank, size))
    expected = hvd.allreduce(g, op=hvd.Adasum)
    for mode in ("eager", "function", "session"):
        found = MODES[mode](lambda x: hvd.allreduce(x, op=hvd.Adasum))(tf.range(1.0, size + 1, dtype=tf.float64))
        assert np.allclose(found, expected), (mode, np.array(found), np.array(expected))


for mode in MODES:
    if mode == "compiled" and xla.problem():
        print(f"rank {rank}: there is no XLA: passed")
        continue
    for operation, formula in gradient_table.column("hpccoll.tensorflow").items():
        if formula == gradient_table.NONE:
            assert not hasattr(hvd, operation), operation
        elif mode != "compiled" or operation.removeprefix("grouped_").startswith(("allreduce", "broadcast")):
            compare(mode, operation, formula)
    print(f"rank {rank}: {mode} passed", flush=True)
check_adasum()
print(f"rank {rank}: Adasum passed", flush=True)
hvd.shutdown()
