"""TensorFlow's elastic states under every sequence of their calls: one rank of a job of test_jobs.py."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import hpccoll.tensorflow as hvd
from hpccoll.tensorflow import elastic

sys.path.append(str(Path(__file__).parents[1] / "elastic"))
import sequences

KIND = sys.argv[1]
v1 = tf.compat.v1
hvd.init()


def with_variables():
    variables = [tf.Variable(np.zeros(shape, dtype)) for shape, dtype in (((2, 3), "f4"), ((), "i8"), ((0,), "f8"))]

    def write(number):
        for variable in variables:
            variable.assign(np.full(variable.shape, number))

    return elastic.TensorFlowState(variables=variables, step=0), write, lambda: [one.numpy() for one in variables]


dropout = tf.keras.layers.Dropout(0.5)


def with_keras():
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1), tf.keras.layers.BatchNormalization()])
    model.add(dropout)
    state = elastic.TensorFlowKerasState(model, tf.keras.optimizers.SGD(0.1, momentum=0.1), step=0)

    def write(number):
        for variable in state.variables:
            variable.assign(np.full(variable.shape, number))

    return state, write, lambda: [one.numpy() for one in state.variables]


def with_a_session():
    v1.disable_eager_execution()
    variable = v1.get_variable("weights", initializer=np.zeros((2, 3), np.float32))
    fed = v1.placeholder(tf.float32, variable.shape)
    assign = variable.assign(fed)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    state = elastic.TensorFlowState(session=session, step=0)
    return state, lambda number: session.run(assign, {fed: np.full((2, 3), number)}), lambda: [session.run(variable)]


make = {"variables": with_variables, "keras": with_keras, "session": with_a_session}
state, write_variables, read_variables = make[KIND]()


def write(number):
    write_variables(number)
    state.step = number


def read():
    return {"variables": np.concatenate([value.ravel() for value in read_variables()]), "step": state.step}


sequences.check(state, hvd.rank(), hvd.size(), write, read)

if KIND == "keras":
    state.sync()
    masks = hvd.allgather_object(dropout(np.ones((1, 64), "f4"), training=True).numpy().tolist())
    assert masks[0] != masks[1], "after sync() all ranks drop the same values"

    class Outer(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = tf.keras.layers.Dense(1)

        def build(self, shape):
            del shape

    outer = Outer()
    outer.build((None, 2))
    with pytest.raises(ValueError, match="the model is not built yet"):
        elastic.TensorFlowKerasState(outer)
    outer.inner.build((None, 2))
    late = elastic.TensorFlowKerasState(outer, step=0)
    outer.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    with pytest.raises(ValueError, match=r"the commit has 2 variables, .* 6 now"):
        late.restore()
    late.save()
    for variable in late.variables:
        variable.assign(np.full(variable.shape, 9))
    late.restore()
    assert late.optimizer is outer.optimizer
    assert late.optimizer.iterations.numpy() == 0, "the optimizer of compile() is not committed"

state.sharded = ("step",)  # two commits are kept of all values then
for number in (5, 6):
    write(number)
    state.save()
state.rollback()
state.restore()
assert state.step == 5 and np.all(read()["variables"] == 5)
print("passed", flush=True)
