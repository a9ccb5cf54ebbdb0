"""Optimizers and tapes with all their arguments, eager and in tf.function: one rank of a job."""

import sys

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd

v1 = tf.compat.v1
FIRST = hvd.ProcessSet([0])
hvd.init(process_sets=[FIRST])
rank, size = hvd.rank(), hvd.size()
mean = (size + 1) / 2
"""The mean of rank + 1 over the ranks."""


def gradient_descent(**options):
    return hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options)


def check_adasum_of_changes():
    """On two ranks, Adasum combines the changes of each rank's step."""
    if size != 2:
        return
    v = tf.Variable([0.0, 0.0])
    optimizer = gradient_descent(op=hvd.Adasum)

    def step():
        optimizer.minimize(lambda: v[0] + v[1] * (1.0 + rank), var_list=[v])

    for call in (step, tf.function(step)):
        v.assign([0.0, 0.0])
        call()
        assert np.allclose(v, adasum(*[-np.array([1.0, 1.0 + other]) for other in range(2)]), atol=1e-5)


def adasum(*vectors):
    a, b = (np.asarray(x, np.float64) for x in vectors)
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b


def check_optimizers_of_keras():
    v = tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([rank + 1.0]), v)])
    assert np.allclose(v, -2 * mean)
    for wrong in (lambda: hvd.DistributedOptimizer(optimizer), lambda: hvd.DistributedOptimizer("sgd")):
        try:
            wrong()
        except ValueError:
            continue
        raise AssertionError("a wrong optimizer passes")


def check_tapes():
    shared, own = tf.Variable([1.0]), tf.Variable([1.0])

    def gradients(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(shared * own) * (rank + 1)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=False)
        tape.register_local_source(own)
        ((stayed, its),), ((other, mixed),) = tape.get_local_and_global_gradients(loss, [shared, own], **options)
        assert stayed is own and other is shared
        return its, mixed

    for options in ({}, {"use_generic_names": True}):
        for call in (gradients, tf.function(gradients)):
            its, mixed = call(**options)
            assert np.allclose(its, rank + 1) and np.allclose(mixed, mean)


def check_names_may_differ():
    """Variables may have other names on other ranks: their positions identify them."""
    v = tf.Variable([1.0], name=f"of_rank_{rank}")

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = v * (rank + 1)
        return hvd.DistributedGradientTape(tape).gradient(loss, [v], use_generic_names=True)

    assert np.allclose(gradient()[0], mean)


def check_ranks_outside_of_a_set_keep_their_gradients():
    v = tf.Variable([1.0])

    def gradient():
        with tf.GradientTape() as tape:
            loss = v * (rank + 1)
        return hvd.DistributedGradientTape(tape, process_set=FIRST).gradient(loss, v)

    assert np.allclose(gradient(), rank + 1)
    assert np.allclose(tf.function(gradient)(), rank + 1)


def check_slices():
    slices = tf.IndexedSlices(tf.ones([1, 2]) * (rank + 1), [rank], [size, 2])

    def reduced():
        mixed = hvd.grouped_allreduce([slices, tf.constant([rank + 1.0])], op=hvd.Sum, name="mixed")
        scoped = hvd.allreduce(slices, name="mean", ignore_name_scope=True)
        return tf.convert_to_tensor(mixed[0]), mixed[1], tf.convert_to_tensor(scoped)

    rows = np.repeat(np.arange(1.0, size + 1), 2).reshape(size, 2)
    for call in (reduced, tf.function(reduced)):
        whole, dense, averaged = call()
        assert np.allclose(whole, rows) and np.allclose(averaged, rows / size)
        assert np.allclose(dense, size * mean)


def check_name_scopes():
    """With another scope on each rank, names without the scope match."""

    @tf.function
    def program(x):
        with tf.name_scope(f"of_rank_{rank}"):
            return [
                hvd.allreduce(x, op=hvd.Sum, name="a", ignore_name_scope=True),
                *hvd.grouped_allreduce([x, x], op=hvd.Sum, name="b", ignore_name_scope=True),
                hvd.reducescatter(x, op=hvd.Sum, name="c", ignore_name_scope=True),
                hvd.allgather(x, name="d", ignore_name_scope=True),
                hvd.broadcast(x, 0, name="e", ignore_name_scope=True),
                hvd.alltoall(x, name="f", ignore_name_scope=True),
            ]

    found = program(tf.ones(size))
    assert [one.shape[0] for one in found] == [size, size, size, 1, size * size, size, size]


def check_masks():
    samples = np.random.default_rng(1).normal(2.0, 3.0, (2 * size, 4, 5)).astype(np.float32)
    masks = np.random.default_rng(2).integers(0, 2, (2 * size, 4)).astype(bool)
    mine = slice(2 * rank, 2 * rank + 2)
    layer, plain = hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization()
    expected = plain(samples, training=True, mask=masks).numpy()[mine]
    assert np.allclose(layer(samples[mine], training=True, mask=masks[mine]), expected, atol=1e-4)
    try:
        hvd.SyncBatchNormalization(fused=True)
    except ValueError as error:
        assert isinstance(error, hpccoll.UnsupportedError)
    else:
        raise AssertionError("fused=True passes")


def check_passes_without_sessions():
    for traced in (False, True):
        for average, scale in ((False, 2.0), (True, 1.0)):
            v, w = tf.Variable([0.0, 0.0], name="v"), tf.Variable(0.0, name="w")
            optimizer = gradient_descent(backward_passes_per_step=2, average_aggregated_gradients=average)

            def step(x, v=v, w=w, optimizer=optimizer):
                pairs = optimizer.compute_gradients(lambda: tf.reduce_sum(v * x) + w * 3, [v, w])
                optimizer.apply_gradients(pairs)

            step = tf.function(step) if traced else step
            for at in range(4):
                step(tf.fill([2], rank + 1.0))
                assert np.allclose(v, -((at + 1) // 2) * scale * mean), (traced, at, v)


for name in sys.argv[1:] or sorted(name for name in globals() if name.startswith("check_")):
    globals()[name]()
    print(f"rank {rank}: {name} passed", flush=True)
hvd.shutdown()
