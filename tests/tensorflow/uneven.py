"""Ranks whose losses have other steps: right in tf.function; eagerly the ranks wait for each other, and are told so."""

import numpy as np
import tensorflow as tf

import hpccoll.tensorflow as hvd
from hpccoll import errors

hvd.init()
rank, size = hvd.rank(), hvd.size()
alone = hvd.add_process_set([0])
single, double = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0], tf.float64)


def gradients():
    with tf.GradientTape() as tape:
        tape.watch([single, double])
        loss = tf.reduce_sum(hvd.allreduce(double, op=hvd.Sum, name="double"))
        for _ in range(3 if rank == 0 else 0):
            loss += tf.reduce_sum(hvd.allreduce(double, op=hvd.Sum, process_set=alone))
        loss += tf.cast(tf.reduce_sum(hvd.allreduce(single, op=hvd.Sum, name="single")), tf.float64)
    return tape.gradient(loss, [single, double])


of_single, of_double = tf.function(gradients)()
assert np.array_equal(of_single, [size, size]), of_single
assert np.array_equal(of_double, 2 * [size + (3 if rank == 0 else 0)]), of_double
try:
    print(gradients())
except errors.StallError as error:
    assert "eager derivative" in str(error), error
    assert "tf.function" in str(error), error
    print(f"rank {rank} passed", flush=True)
