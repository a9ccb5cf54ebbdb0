"""An elastic training with tf.function, a Keras model, or a session; rank 0 is killed in the middle, and replaced."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import hpccoll.tensorflow as hvd
from hpccoll.tensorflow import elastic

STEPS, RANKS, VICTIM, KIND = 20, 3, Path(sys.argv[1]), sys.argv[2]
v1 = tf.compat.v1
hvd.init()
rng = np.random.default_rng(0)
x = rng.standard_normal((32, 4)).astype(np.float32)
y = x.sum(1, keepdims=True).astype(np.float32)


def loss_of(weights):
    return tf.reduce_mean(tf.square(x @ weights - y))


def with_a_function(**options):
    weights = tf.Variable(tf.fill([4, 1], float(hvd.rank())))

    @tf.function(**options)
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(weights)
        (gradient,) = hvd.DistributedGradientTape(tape, gradient_predivide_factor=2.0).gradient(loss, [weights])
        weights.assign_sub(0.1 * gradient)

    return elastic.TensorFlowState(variables=[weights], step=0), step, lambda: weights.numpy()


def with_keras():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1, use_bias=False)])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.1)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(model.trainable_variables[0].value)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return elastic.TensorFlowKerasState(model, optimizer, step=0), step, lambda: model.get_weights()[0]


def with_a_session():
    v1.disable_eager_execution()
    weights = v1.get_variable("weights", initializer=np.full((4, 1), hvd.rank(), np.float32))
    made = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(loss_of(weights))
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    state = elastic.TensorFlowState(session=session, step=0)
    return state, lambda: session.run(made), lambda: session.run(weights)


@elastic.run
def train(state):
    while state.step < STEPS or hvd.size() < RANKS:
        if state.step == 7 and hvd.rank() == 0 and not VICTIM.exists():
            VICTIM.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        step()
        state.step += 1
        state.commit()


make = {"function": with_a_function, "keras": with_keras, "session": with_a_session}
make["compiled"] = lambda: with_a_function(jit_compile=True)
state, step, values = make[KIND]()
train(state)
each = hvd.allgather_object(values().tolist())
assert all(one == each[0] for one in each), "ranks have different weights"
assert np.abs(values() - 1.0).max() < 0.2, values()
if hvd.rank() == 0:
    print(f"{state.step} steps, with {hvd.size()} ranks at the end", flush=True)
