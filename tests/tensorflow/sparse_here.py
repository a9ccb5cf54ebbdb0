# SPDX-License-Identifier: Apache-2.0
"""The gradient of a table is a tf.IndexedSlices on rank 0 alone: the reports of the stall say so."""

import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd

hvd.init()
table = tf.Variable(tf.ones((4, 2)), name="table")
with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    loss = tf.reduce_sum(tf.gather(table, [1, 2]) if hvd.rank() == 0 else 2 * table)
try:
    tape.gradient(loss, [table])
except hpccoll.StallError:
    print("passed")
