"""Operations in programs that XLA compiles (jit_compile=True): one rank of a job."""

import random
import sys

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd
from hpccoll import arrays
from hpccoll.tensorflow import xla

tf.get_logger().setLevel("ERROR")  # it warns of programs that are traced and used once
hvd.init()
rank, size = hvd.rank(), hvd.size()
mean = (size + 1) / 2  # of rank + 1


def compiled(function):
    return tf.function(function, jit_compile=True)


def check_values():
    for dtype in (getattr(tf, name) for name in arrays.NAMES if name != "bool"):
        x = tf.cast(tf.reshape(tf.range(6), [2, 3]), dtype)
        got = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, name=f"sum {x.dtype.name}"))(x)
        assert got.dtype == dtype
        assert np.array_equal(tf.cast(got, tf.complex128), size * np.arange(6).reshape(2, 3)), dtype
    anyone = compiled(lambda x: hvd.allreduce(x, op=hvd.Max, name="anyone"))
    assert np.array_equal(anyone(tf.constant([rank == 0, False])), [True, False])
    scaled = compiled(lambda x: hvd.allreduce(x, prescale_factor=2.0, postscale_factor=3.0, name='"a" \\ é\n'))
    assert np.allclose(scaled(tf.ones([]) * (rank + 1)), 6 * mean)
    root = compiled(lambda x: hvd.broadcast(x, size - 1))
    assert root(tf.constant([rank])) == size - 1
    columns = compiled(lambda x: hvd.allreduce(tf.transpose(x), name="transposed") * 2)
    assert np.array_equal(columns(tf.reshape(tf.range(6.0), [2, 3])), 2 * np.arange(6).reshape(2, 3).T)
    none = compiled(lambda x: hvd.allreduce(x, name="none"))
    assert none(tf.ones([0, 3])).shape == (0, 3)
    wire = compiled(lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16, name="wire"))
    assert np.allclose(wire(tf.constant([rank + 1.0])), mean)


def check_groups():
    @compiled
    def program(x, y):
        return hvd.grouped_allreduce([x, y], op=hvd.Max, name="group")

    x, y = program(tf.fill([3], float(rank)), tf.fill([2, 2], float(-rank)))
    assert np.array_equal(x, [size - 1] * 3)
    assert np.array_equal(y, np.zeros([2, 2]))


def check_what_nothing_uses_runs():
    @compiled
    def program():
        hvd.allreduce(tf.ones(1), name="unused")
        return hvd.allreduce(tf.ones(1), name="of a constant")

    for _ in range(2):
        before = hpccoll.world().stats()["requests"]
        assert program() == 1.0
        assert hpccoll.world().stats()["requests"] == before + 2


def check_orders():
    """Small and large, in opposite orders; one needs another."""
    for n in (1, 3, 200, 5000):

        @compiled
        def program(x):
            order = range(12) if rank % 2 else range(11, -1, -1)
            values = {i: hvd.allreduce(tf.tanh(x * (i + 1.0)), name=f"{len(x)}.{i}") for i in order}
            return [hvd.allreduce(values[i] + i, name=f"{len(x)} again.{i}") for i in sorted(order, reverse=rank % 2)]

        for i, value in enumerate(sorted(float(x[0]) for x in program(tf.ones(n)))):
            assert np.isclose(value, np.tanh(i + 1.0) + i)


def check_values_that_come_in_other_orders():
    """Each value depends on the one before, in this rank's order; the results are small, so memory becomes free."""
    order = range(6) if rank % 2 else range(5, -1, -1)
    counts = [tf.Variable(float(i)) for i in range(6)]

    @compiled
    def program(x):
        values, small = {}, {}
        for i in order:
            x = tf.tanh(x * 1.1)
            counts[i].assign_add(x[0, 0] * 0)
            values[i] = hvd.allreduce(x * 0 + counts[i], op=hvd.Sum, name=f"value {i}")
            small[i] = tf.reduce_sum(values[i]) / values[i].shape.num_elements()
            counts[i].assign(small[i])  # what reads it later needs this operation
        for i in order:
            x = tf.tanh(x * 1.1)
            values[i] = hvd.allreduce(x * 0 + counts[i], op=hvd.Sum, name=f"again {i}")
        return [tf.reduce_mean(values[i]) for i in range(6)]

    assert np.allclose(program(tf.ones([100, 100])), [size**2 * i for i in range(6)])


def check_empty_results_in_other_orders():
    @compiled
    def program(x):
        order = range(6) if rank % 2 else range(5, -1, -1)
        values = {i: hvd.allreduce(x[:, :i], name=f"empty {i}") for i in order}
        group = hvd.grouped_allreduce([x, tf.ones(2), x, tf.range(3.0)], op=hvd.Sum, name="some are empty")
        return [values[i] for i in range(6)], group

    values, group = program(tf.ones([0, 6]))
    assert [x.shape for x in values] == [(0, i) for i in range(6)]
    assert [x.shape for x in group] == [(0, 6), (2,), (0, 6), (3,)]
    assert np.array_equal(group[1], size * np.ones(2))
    assert np.array_equal(group[3], size * np.arange(3.0))


def check_loops_and_branches():
    @compiled
    def program(x, n):
        for _ in tf.range(n):
            x = hvd.allreduce(2.0 * x, name="looped")
        return tf.cond(x[0] > 0, lambda: hvd.allreduce(x + rank, name="branch"), lambda: x)

    assert np.allclose(program(tf.ones(3), tf.constant(4)), 16 + (size - 1) / 2)


def check_gradients():
    v = tf.Variable([2.0, 3.0])

    @compiled
    def program():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(hvd.allreduce(v * (rank + 1.0), op=hvd.Sum, name="loss") * (rank + 1.0))
            loss += tf.reduce_sum(hvd.broadcast(v, 0, name="root"))
        return tape.gradient(loss, v)

    total = size * (size + 1) / 2
    assert np.allclose(program(), total * (rank + 1) + (1 if rank == 0 else 0)), program()


def check_tapes():
    """The steps of all ranks train what one rank would; one variable's gradient stays on its rank."""
    w, local = tf.Variable(tf.ones([3, 1])), tf.Variable(1.0)

    @compiled
    def program(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ w) * local
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(local)
        return tape.gradient(loss, [w, local])

    of_all, own = program(tf.fill([2, 3], rank + 1.0))
    assert np.allclose(of_all, 2 * mean)
    assert np.isclose(own, 6 * (rank + 1.0) / size)


def check_equal_names():
    """Calls with the same name are distinguished, also in branches."""

    def summed(x, name):
        return hvd.allreduce(x, op=hvd.Sum, name=name)

    @compiled
    def program(x):
        inside = tf.cond(x[0] > 0, lambda: summed(2 * x, "x"), lambda: x)
        return [summed(10 * x, "x"), inside, summed(3 * x, "x"), summed(4 * x, "x_1"), summed(5 * x, "x (2)")]

    for _ in range(10):
        assert np.allclose(np.ravel(program(tf.ones(1))), size * np.array([10, 2, 3, 4, 5]))


def late(x, here):
    """Return the same value, on some ranks after a while of computing."""
    a = tf.eye(400) * x[0]
    for _ in range(30 if here else 0):
        a = tf.tanh(a @ a)
    return x + 0 * a[0, 0]


def check_a_function_that_was_traced_before():
    """Its operations have other names at each call; the ranks compute the values of two calls in opposite orders."""
    inner = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, name="of a function"))
    outer = tf.function(lambda x: inner(x) * 1.0)
    assert np.allclose(inner(tf.ones(1)), size)
    for function in (inner, outer):
        twice = compiled(lambda x, f=function: [f(late(x, rank == 0)), f(late(3 * x, rank != 0))])
        for _ in range(3):
            assert np.allclose(np.ravel(twice(tf.ones(1))), size * np.array([1, 3]))
    assert np.allclose(inner(tf.ones(1)), size)


def check_derivatives_of_a_function_that_was_traced_before():
    """The derivative of a sum is the sum: a tape over two calls, whose losses differ and depend on the rank."""
    inner = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, name="of a function"))
    inner(tf.ones(1))

    @compiled
    def program(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = inner(x) * (rank + 1.0) + inner(10 * x) * 3.0
        return tape.gradient(loss, x)

    assert np.allclose(program(tf.ones(1)), size * (size + 1) / 2 + 30 * size)


def check_what_cannot_be_traced_anew_is_called_once():
    function = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, name="of a function"))
    concrete = function.get_concrete_function(tf.TensorSpec([1]))
    assert np.allclose(compiled(lambda x: concrete(x))(tf.ones(1)), size)
    refused(lambda: compiled(lambda x: concrete(x) + concrete(3 * x))(tf.ones(1)), "called twice", "jit_compile=False")


def check_disagreement():
    program = compiled(lambda x: hvd.allreduce(x, name="odd"))
    try:
        program(tf.ones(2 + (rank == 1)))
    except tf.errors.FailedPreconditionError as error:
        assert "hpccoll.MismatchError: allreduce 'allreduce.odd': rank 0 has float32[2]" in str(error), error
    else:
        raise AssertionError("passes")
    assert np.array_equal(program(tf.ones(4)), np.ones(4))


def refused(call, *words):
    before = hpccoll.world().stats()["requests"]
    try:
        call()
    except ValueError as error:
        assert all(word in str(error) for word in words), error
        assert hpccoll.world().stats()["requests"] == before
    else:
        raise AssertionError(f"passes: {words}")


def check_what_it_cannot():
    refused(lambda: compiled(lambda: hvd.allgather(tf.ones(1)))(), "allgather cannot be", "jit_compile=False")
    refused(lambda: compiled(lambda: hvd.barrier())(), "barrier cannot be")
    signature = [tf.TensorSpec([None])]
    unknown = tf.function(lambda x: hvd.allreduce(x), jit_compile=True, input_signature=signature)
    refused(lambda: unknown(tf.ones(1)), "shape (None,) is not known")


def check_random_programs():
    """Each rank has the same operations, in another order."""
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        agreed, own = random.Random(seed), random.Random(f"{seed} {rank}")
        count, n = agreed.randrange(2, 12), agreed.choice([1, 3, 200, 5000])
        needs = {i: agreed.sample(range(i), min(i, agreed.choice([0, 0, 1, 2]))) for i in range(count)}
        kind = {i: agreed.choice(["mean", "mean", "root", "group"]) for i in range(count)}
        expected = []
        for i in range(count):
            expected.append(np.tanh(1 + sum(expected[k] for k in needs[i])))

        def operation(i, x, seed=seed, kind=kind):
            name = f"{seed}.{i}"
            if kind[i] == "mean":
                return hvd.allreduce(x * (rank + 1.0), name=name) / mean
            if kind[i] == "root":
                return hvd.broadcast(x * (rank + 1.0), 0, name=name)
            return sum(hvd.grouped_allreduce([x, x], op=hvd.Sum, name=name)) / (2 * size)

        def program(x, own=own, count=count, needs=needs, operation=operation):
            values, left = {}, set(range(count))
            while left:
                i = own.choice(sorted(i for i in left if all(k in values for k in needs[i])))
                left.remove(i)
                values[i] = operation(i, tf.tanh(x + sum(values[k] for k in needs[i])))
            return [values[i] for i in range(count)]

        for i, value in enumerate(compiled(program)(tf.ones(n))):
            assert np.allclose(value, expected[i], rtol=1e-4), (seed, i)


def check_training():
    """Keras, compiled by XLA."""
    import hpccoll.tensorflow.keras as hvk

    tf.keras.utils.set_random_seed(rank)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    model.compile(hvk.DistributedOptimizer(tf.keras.optimizers.Adam(0.03)), "mse", jit_compile=True)
    x = np.random.default_rng(rank).standard_normal((64, 4)).astype("float32")
    start = [hvk.callbacks.BroadcastGlobalVariablesCallback(0)]
    losses = model.fit(x, x.sum(1), batch_size=16, epochs=10, verbose=0, callbacks=start).history["loss"]
    assert losses[-1] < losses[0] / 4, losses
    for value in model.get_weights():
        assert np.array_equal(value, hvd.broadcast(value, 0))


if xla.problem():
    refused(lambda: compiled(lambda: hvd.allreduce(tf.ones(1)))(), xla.problem(), "jit_compile=False")
    print(f"rank {rank}: there is no XLA for it here: {xla.problem()}", flush=True)
else:
    for check in [value for name, value in sorted(globals().items()) if name.startswith("check_")]:
        check()
        print(f"rank {rank}: {check.__name__} passed", flush=True)
hvd.shutdown()
