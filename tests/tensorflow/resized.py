"""Functions that contain the rank or the number of ranks, before and after the World has one rank only."""

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd
from hpccoll.rendezvous import SingleProcess
from hpccoll.tensorflow import xla

hvd.init()
rank, size = hvd.rank(), hvd.size()
weights = tf.Variable([1.0, 2.0])
COMPILED = not xla.problem()


@tf.function(jit_compile=COMPILED)
def local_gradient(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weights * x)
    made = hvd.DistributedGradientTape(tape)
    made.register_local_source(weights)
    return made.gradient(loss, [weights])[0]


@tf.function
def around(x):
    return local_gradient(x) * 2.0


@tf.function(jit_compile=COMPILED)
def of_broadcast(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(hvd.broadcast(x, 0, name="broadcast"))
    return tape.gradient(y, x)


@tf.function
def of_allgather(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.allgather(x, name="allgather")
        y = tf.reduce_sum(y * tf.cast(tf.range(1, tf.shape(y)[0] + 1), tf.float32))
    return tape.gradient(y, x)


def check(rank, size):
    ones = tf.ones(2)
    np.testing.assert_allclose(local_gradient(ones), np.full(2, 1 / size))
    np.testing.assert_allclose(around(ones), np.full(2, 2 / size))
    np.testing.assert_allclose(of_broadcast(ones), np.full(2, float(rank == 0)))
    np.testing.assert_allclose(of_allgather(ones), np.array([1, 2]) + 2 * rank)


check(rank, size)
hvd.shutdown()
hpccoll.init(rendezvous=SingleProcess())
check(0, 1)
traced = [one.experimental_get_tracing_count() for one in (local_gradient, around, of_broadcast, of_allgather)]
check(0, 1)
assert traced == [
    one.experimental_get_tracing_count() for one in (local_gradient, around, of_broadcast, of_allgather)
], "they are traced at each call"
print("passed", flush=True)
