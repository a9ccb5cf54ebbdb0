# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's 161 gradients, and one float, in TensorFlow: eager, in tf.function, by XLA, beside the NumPy call.

    OMP_NUM_THREADS=1 hpccoll run -np 2 python benchmarks/tensorflow_gradients.py

All take turns in one job; Horovod for TensorFlow is a contestant if it is installed. NumPy arrays are reduced in place,
and into other arrays, as tensors always are. A tf.function that only multiplies shows TensorFlow's part of the time.
Another question: after which share of a training step do the requests for gradients begin, if the backward pass
computes them one after another?
"""

import argparse
from typing import Any

import in_turn
import numpy as np
import overlap
import tensorflow as tf
from in_turn import COMM, ELSEWHERE, NUMPY, Bar, Contestant

import hpccoll.tensorflow as hvd
from hpccoll.frontend.gradient_step import GradientStep
from hpccoll.tensorflow import xla
from hpccoll.tensorflow.reducing import combine

EAGER, GRAPH, HOROVOD = "eager", "tf.function", "Horovod in tf.function"
XLA = "tf.function, by XLA"
COMPUTED, ALONE = "tf.function, of x * 1.0", "tf.function, x * 1.0 alone"
GRADIENTS = [Bar(GRAPH, NUMPY, 2.0), Bar(EAGER, NUMPY, 1.5), Bar(EAGER, ELSEWHERE, 1.5), Bar(GRAPH, HOROVOD, 0.2)]
EAGER_SECONDS, GRAPH_SECONDS = 30e-6, 100e-6
"""The limits for one float."""
FLOAT = [Bar(EAGER, "", EAGER_SECONDS), Bar(GRAPH, "", GRAPH_SECONDS)]


def horovod() -> Any:
    try:
        import horovod.tensorflow as module
    except ImportError:
        return None
    module.init()
    return module


def of_tensors(run: Any, given: list[np.ndarray]) -> Contestant:
    return Contestant(run, lambda: in_turn.check(given, [np.asarray(x) for x in run()], 1 / COMM.size))


def gradients(peer: Any, given: list[np.ndarray]) -> dict[str, Contestant]:
    tensors = [tf.constant(x) for x in given]
    variables = [tf.Variable(x, name=f"v{i}") for i, x in enumerate(tensors)]
    step = GradientStep("bench")
    program = tf.function(lambda *xs: combine(step, xs, variables), autograph=False)
    computed = tf.function(lambda *xs: combine(step, [x * 1.0 for x in xs], variables), autograph=False)
    compiled = tf.function(lambda *xs: combine(step, xs, variables), autograph=False, jit_compile=True)
    multiplied = tf.function(lambda *xs: [x * 1.0 for x in xs], autograph=False)
    made = {
        NUMPY: in_turn.in_numpy(given),
        ELSEWHERE: in_turn.in_numpy(given, in_place=False),
        EAGER: of_tensors(lambda: combine(step, tensors, variables), given),
        GRAPH: of_tensors(lambda: program(*tensors), given),
        COMPUTED: of_tensors(lambda: computed(*tensors), given),
        ALONE: Contestant(lambda: multiplied(*tensors)),
    }
    if not xla.problem():
        made[XLA] = of_tensors(lambda: compiled(*tensors), given)
    if peer is not None:
        others = tf.function(lambda *xs: [peer.allreduce(x, name=f"p{i}") for i, x in enumerate(xs)], autograph=False)
        made[HOROVOD] = of_tensors(lambda: others(*tensors), given)
    return made


def one_float(peer: Any, given: list[np.ndarray]) -> dict[str, Contestant]:
    scalar = tf.constant(given[0])
    program = tf.function(lambda x: hvd.allreduce(x, name="one"), autograph=False)
    compiled = tf.function(lambda x: hvd.allreduce(x, name="by XLA"), autograph=False, jit_compile=True)
    multiplied = tf.function(lambda x: x * 1.0, autograph=False)
    made = {
        EAGER: of_tensors(lambda: [hvd.allreduce(scalar, name="eager")], given),
        GRAPH: of_tensors(lambda: [program(scalar)], given),
        ALONE: Contestant(lambda: multiplied(scalar)),
    }
    if not xla.problem():
        made[XLA] = of_tensors(lambda: [compiled(scalar)], given)
    if peer is not None:
        made["Horovod, eager"] = of_tensors(lambda: [peer.allreduce(scalar, name="horovod")], given)
    return made


def training_step(size: str) -> overlap.Step:
    """Return a step of dense layers, whose gradients are each an operation."""
    layers, inputs = overlap.layers(size)
    weights = [tf.Variable(w) for w in layers]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            x = tf.constant(inputs)
            for w in weights:
                x = tf.tanh(tf.matmul(x, w))
            loss = tf.reduce_sum(x * x)
        for w, gradient in zip(weights, hvd.DistributedGradientTape(tape).gradient(loss, weights), strict=True):
            w.assign_sub(1e-6 * gradient)
        return loss

    return lambda: step().numpy()


def measure_all(options: argparse.Namespace) -> None:
    peer = horovod()
    records: list[Any] = []
    if "gradients" in options.only:
        given = in_turn.random_gradients(options)
        found = in_turn.measure(gradients(peer, given), options.rounds, 1)
        in_turn.report(f"{len(given)} gradients of ResNet-50", found, GRADIENTS, records)
    if "one" in options.only:
        scalar = [np.full(1, 1.0 + COMM.rank, np.float32)]
        found = in_turn.measure(one_float(peer, scalar), options.rounds, 1 if options.size == "tiny" else 50)
        in_turn.report("one float", found, FLOAT, records)
    if "overlap" in options.only:
        overlap.report(overlap.measure(training_step(options.size)), records)
    in_turn.keep("tensorflow_gradients", options, records)


if __name__ == "__main__":
    chosen = in_turn.arguments(__doc__ or "", 20)
    hvd.init()
    measure_all(chosen)
    hvd.shutdown()
