"""Random programs: every rank has the same operations in another order, and no rank hangs.

python orders.py FIRST COUNT THREADS [kill]: one rank of a job. Every third program reduces the gradients of a tape
eagerly, the next ones run in tf.function and in a session. With `kill` the last rank ends before the last program.
"""

import os
import random
import signal
import sys

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd

FIRST, COUNT, THREADS = map(int, sys.argv[1:4])
KILL = sys.argv[4:] == ["kill"]
tf.get_logger().setLevel("ERROR")  # it warns of programs that are traced and used twice
tf.config.threading.set_inter_op_parallelism_threads(THREADS)
tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def a_program(seed):
    """Make a function with the same operations as on all ranks, in this rank's order, and its expected result."""
    agreed, own = random.Random(seed), random.Random(f"{seed} {rank}")
    count, n = agreed.randrange(2, 12), agreed.choice([1, 3, 200, 5000])
    needs = {i: agreed.sample(range(i), min(i, agreed.choice([0, 0, 1, 2]))) for i in range(count)}
    kind = {i: agreed.choice(["mean", "mean", "root", "rows", "group"]) for i in range(count)}
    order, left = [], set(range(count))
    while left:
        order.append(own.choice(sorted(i for i in left if all(k in order for k in needs[i]))))
        left.remove(order[-1])

    def operation(i, x):
        name = f"{seed}.{i}"
        if kind[i] == "mean":
            return hvd.allreduce(x * (rank + 1.0), name=name) / ((size + 1) / 2)
        if kind[i] == "root":
            return hvd.broadcast(x * (rank + 1.0), 0, name=name)
        if kind[i] == "rows":
            return hvd.allgather(x, name=name)[-n:]
        return sum(hvd.grouped_allreduce([x, x], op=hvd.Sum, name=name)) / (2 * size)

    def program(x):
        values = {}
        for i in order:
            values[i] = operation(i, tf.tanh(x + sum(values[k] for k in needs[i])))
        return [values[i] for i in range(count)]

    expected = []
    for i in range(count):
        expected.append(np.tanh(np.ones(n) + sum(expected[k] for k in needs[i])))
    return program, n, expected


def of_a_tape(seed):
    """Make gradients whose variables have another order on each rank: several eager operations are in flight."""
    agreed, own = random.Random(seed), random.Random(f"{seed} {rank}")
    count = agreed.randrange(2, 12)
    variables = [tf.Variable(tf.ones(agreed.choice([1, 3, 200])), name=f"{seed}_{i}") for i in range(count)]
    order = own.sample(range(count), count)
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(v) * (rank + 1.0) * i for i, v in enumerate(variables))
    found = hvd.DistributedGradientTape(tape).gradient(loss, [variables[i] for i in order])
    for i, gradient in zip(order, found, strict=True):
        assert np.allclose(gradient, i * (size + 1) / 2), (seed, i)


def run(seed):
    if seed % 3 == 0:
        of_a_tape(seed)
        return
    program, n, expected = a_program(seed)
    if seed % 3 == 1:
        made = tf.function(program)
        found = [made(tf.ones(n)) for _ in range(2)][1]
    else:
        with tf.Graph().as_default():
            results = program(tf.ones(n))
            with tf.compat.v1.Session() as session:
                found = [session.run(results) for _ in range(2)][1]
    for i, value in enumerate(expected):
        assert np.allclose(found[i], value, rtol=1e-4), f"program {seed}, operation {i}"


for seed in range(FIRST, FIRST + COUNT):
    last = KILL and seed == FIRST + COUNT - 1
    if last and rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        run(seed)
    except (tf.errors.UnavailableError, tf.errors.FailedPreconditionError, hpccoll.RecoverableError) as error:
        assert last and f"rank {size - 1} (host" in str(error), error
        print(f"rank {rank}: the lost rank is named", flush=True)
        os._exit(0)
    if last:
        raise AssertionError("a lost rank is not noticed")
print(f"rank {rank}: {COUNT} programs have ended", flush=True)
hvd.shutdown()
