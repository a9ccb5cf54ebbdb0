"""Checks that calls of one program with equal or similar names are distinguished: one rank of a job of test_jobs.py."""

import os
import sys

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()


def summed(x, name=None):
    return hvd.allreduce(x, op=hvd.Sum, name=name)


def always(program, expected, times=30):
    """Check that every run has the expected values, although TensorFlow may run independent steps in any order."""
    for _ in range(times):
        found = np.ravel(program(tf.ones(1)))
        assert np.allclose(found, expected), found


def check_two_tapes_of_unnamed_variables():
    """The gradient of the second variable of a name is not the first gradient of the next name."""
    v = [tf.Variable([0.0]) for _ in range(4)]

    def gradients(x):
        with tf.GradientTape() as one, tf.GradientTape() as other:
            first, second = (v[0] + 2 * v[1]) * (rank + x), (30 * v[2] + 40 * v[3]) * (rank + x)
        one, other = hvd.DistributedGradientTape(one), hvd.DistributedGradientTape(other)
        return [*one.gradient(first, v[:2]), *other.gradient(second, v[2:])]

    expected = np.array([1, 2, 30, 40]) * (size + 1) / 2
    always(gradients, expected, times=1)
    always(tf.function(gradients), expected)


def check_variables_whose_names_look_numbered():
    v = [tf.Variable([0.0], name=name) for name in ("v", "v", "v (2)", "v_1", "v", "v (2)")]

    def gradients(x):
        with tf.GradientTape() as tape:
            loss = sum((10.0**i) * one for i, one in enumerate(v)) * x
        return hvd.DistributedGradientTape(tape).gradient(loss, v)

    for program in (gradients, tf.function(gradients)):
        always(program, 10.0 ** np.arange(6), times=5)


def check_names_in_another_order():
    """The ranks trace calls of different names in other orders; one looks like the second call of another."""

    @tf.function
    def program(x):
        calls = [("x", 1), ("x (2)", 2), ("x_1", 3), ("x (in inner)", 4), ("x (2) (1)", 5)]
        results = {name: summed(n * x, name) for name, n in (calls if rank % 2 else calls[::-1])}
        return [results[name] for name, _ in calls] + [summed(6 * x, "x")]

    always(program, size * np.arange(1, 7))


def check_functions_inside_functions():
    """A function that was traced before is called twice beside a call of the same name."""
    v = tf.Variable([3.0])

    @tf.function
    def inner(x):
        return summed(x * v, "x") + summed(x)

    assert inner(tf.ones(1)) == 4 * size

    @tf.function
    def program(x):
        return [summed(10 * x, "x"), inner(x), inner(3 * x), summed(20 * x, "x")]

    always(program, size * np.array([10, 4, 12, 20]))


def check_branches_and_loops():
    """The ranks take different branches."""

    @tf.function
    def program(x):
        first = tf.cond(rank % 2 == x[0], lambda: summed(x, "x"), lambda: summed(x, "x"))
        second = tf.cond(x[0] > 0, lambda: summed(2 * x, "x"), lambda: x)
        looped = x
        for _ in tf.range(2):
            looped = summed(looped, "x")
        return [summed(10 * x, "x"), first, second, looped]

    always(program, size * np.array([10, 1, 2, size]))


def check_derivatives_of_functions_inside_functions():
    v = tf.Variable([2.0])

    @tf.function
    def inner(x):
        return summed(x * v, "x")

    @tf.function
    def program(x):
        with tf.GradientTape(persistent=True) as tape:
            losses = [inner(x), inner(10 * x), summed(100 * x * v, "x")]
        return [tape.gradient(loss, v) for loss in losses]

    always(program, size * np.array([1, 10, 100]))


def check_sets_are_counted_apart():
    """Ranks outside of a set do not make its calls, so these must not change the numbers of other calls."""
    if size == 1:
        return
    first = hvd.add_process_set([0])

    @tf.function
    def program(x):
        own = [hvd.allreduce(7 * x, op=hvd.Sum, name="x", process_set=first)] if rank == 0 else [7 * x]
        return [*own, summed(x, "x"), summed(2 * x, "x")]

    always(program, [7, size, 2 * size])
    hvd.remove_process_set(first)


def check_derivatives_after_a_join():
    """The ranks have made different numbers of calls without a name by then; docs/gradients.md has the gradients."""
    for _ in range(3 * rank):
        hvd.allreduce(tf.ones(2))
    hvd.join()
    for operation, want in (
        (lambda x: hvd.allreduce(x, op=hvd.Sum), size),
        (lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum)[0], size),
        (hvd.allgather, 1),
        (lambda x: hvd.grouped_allgather([x, x])[0], 1),
        (lambda x: hvd.broadcast(x, 0), int(rank == 0)),
        (hvd.alltoall, 1),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum), size),
    ):
        v = tf.Variable(tf.ones(size))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(operation(v.read_value()))
        assert np.allclose(tape.gradient(loss, v), want)


def check_a_group_that_one_rank_refuses():
    """The group of the others ends as well, whole, and the next call without a name matches."""
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        try:
            hvd.grouped_allgather([x, object() if rank == size - 1 else x, x])
        except (ValueError, hpccoll.HpccollError) as error:
            assert "no tensor" in str(error)
        else:
            raise AssertionError("the group has a result")
        assert np.allclose(hvd.allgather(x + rank), np.concatenate([[1 + r, 2 + r] for r in range(size)]))


def check_derivatives_in_other_orders_are_never_mixed():
    """The derivatives of eager calls without a name belong to these calls in any order of a rank's tape."""
    v = tf.Variable([1.0])
    with tf.GradientTape(persistent=True) as tape:
        losses = [summed(v), 10 * summed(v)]
    assert np.allclose([tape.gradient(loss, v) for loss in losses], [[size], [10 * size]])
    if size == 1:
        return
    hvd.shutdown()
    os.environ["HPCCOLL_STALL_LIMIT"] = "2"
    hvd.init()
    try:
        found = [tape.gradient(loss, v) for loss in (losses if rank == 0 else losses[::-1])]
    except hvd.HorovodInternalError as error:
        assert "eager call" in str(error), error
    else:
        raise AssertionError(found)
    hvd.shutdown()
    del os.environ["HPCCOLL_STALL_LIMIT"]
    hvd.init()


tf.config.threading.set_inter_op_parallelism_threads(3)
for name in sys.argv[1:] or sorted(name for name in globals() if name.startswith("check_")):
    globals()[name]()
    print(f"rank {rank}: {name} passed", flush=True)
hvd.shutdown()
