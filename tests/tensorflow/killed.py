"""Rank 1 is killed while the others run a program; they print the error that ends theirs."""

import os
import signal
import sys

import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd

hvd.init()


def step(x):
    return [hvd.allreduce(x * float(i), op=hvd.Sum, name=f"of step {i}") for i in range(4)]


def session():
    with tf.Graph().as_default():
        made = step(tf.ones(3))
        opened = tf.compat.v1.Session()
    return lambda _: opened.run(made)


def gradients():
    v = tf.Variable([1.0])

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * x)
        return hvd.DistributedGradientTape(tape).gradient(loss, [v])

    return program


make = {
    "eager": lambda: step, "function": lambda: tf.function(step), "session": session, "gradients": gradients,
    "compiled": lambda: tf.function(step, jit_compile=True),
}  # fmt: skip
run = make[sys.argv[1]]()
try:
    for count in range(1000):
        if count == 5 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        run(tf.ones(3))
except (tf.errors.UnavailableError, tf.errors.InternalError, hpccoll.PeerLostError) as error:
    print(f"rank {hvd.rank()} saw it: {type(error).__name__}:", *str(error).split(), flush=True)
os._exit(0)  # the others see rank 1 alone
