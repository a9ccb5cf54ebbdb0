"""Many steps of tf.function and of eager operations: the memory of the process stays as it is. One rank of a job."""

import resource
import sys
from pathlib import Path

import tensorflow as tf

import hpccoll.tensorflow as hvd

STEPS = int(sys.argv[1])
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
weights, bias = tf.Variable(tf.ones([50, 50])), tf.Variable(tf.zeros([50]))


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(x @ weights) + bias) ** 2)
    gradients = hvd.DistributedGradientTape(tape, groups=None).gradient(loss, [weights, bias])
    for variable, gradient in zip([weights, bias], gradients, strict=True):
        variable.assign_sub(0.01 * gradient)
    losses = hvd.allgather(loss, name="losses")
    return hvd.allreduce(x, name="of an argument"), tf.reduce_sum(losses) + hvd.broadcast(loss, 0, name="root")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


pages, x = [], tf.ones([8, 50])
for i in range(STEPS + 1):
    x, value = step(x)
    if i % 10 == 0:
        value = hvd.allreduce(value, name="eager") + tf.reduce_sum(hvd.allgather(value[tf.newaxis], name="rows"))
        value.numpy()
    if i % (STEPS // 5) == 0:
        pages.append(resident())
assert pages[-1] - pages[1] < STEPS * 1000, pages  # bytes per step
print(f"rank {hvd.rank()}: {STEPS} steps, {pages[-1] - pages[1]} bytes more after the first fifth", flush=True)
hvd.shutdown()
