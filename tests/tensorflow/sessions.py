"""Optimizers and derivatives in graphs of sessions: one rank of a job. With `old`: settings of TensorFlow 1."""

import sys

import numpy as np
import tensorflow as tf

import hpccoll.tensorflow as hvd

v1 = tf.compat.v1
OLD = sys.argv[1:] == ["old"]
if OLD:
    v1.disable_v2_behavior()
hvd.init()
rank, size = hvd.rank(), hvd.size()
mean = (size + 1) / 2
"""The mean of rank + 1 over the ranks."""


def gradient_descent(**options):
    return hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options)


def in_a_session(passes, loss_of=lambda v, w: tf.reduce_sum(v * (rank + 1)) + w * 3, local=False, **options):
    """Run four passes; return the variables after each, and global_step."""
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=[0.0, 0.0])
        w = v1.get_variable("w", initializer=0.0)
        steps = v1.train.get_or_create_global_step()
        optimizer = gradient_descent(backward_passes_per_step=passes, **options)
        if local:
            optimizer.register_local_var(w)
        step = optimizer.minimize(loss_of(v, w), global_step=steps)
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            seen = []
            for _ in range(4):
                session.run(step)
                seen.append(session.run([v, w]))
            return seen, session.run(steps)


def check_passes_in_sessions():
    for average, scale in ((False, 2.0), (True, 1.0)):
        seen, steps = in_a_session(2, average_aggregated_gradients=average)
        assert steps in (2, 4), steps
        for at, (v, w) in enumerate(seen):
            updates = (at + 1) // 2
            assert np.allclose(v, -updates * scale * mean), (at, v)
            assert np.allclose(w, -updates * scale * 3), (at, w)
    seen, steps = in_a_session(1)
    assert steps == 4
    assert np.allclose(seen[-1][0], -4 * mean)


def check_local_variables_in_sessions():
    for scaled, share in ((True, 1 / size), (False, 1.0)):
        for passes in (1, 2):
            seen, _ = in_a_session(passes, local=True, scale_local_gradients=scaled)
            assert np.allclose(seen[-1][0], -4 * mean)
            assert np.allclose(seen[-1][1], -4 * 3 * share), seen


def check_sparse_gradients_in_sessions():
    def loss_of(v, w):
        return tf.reduce_sum(tf.gather(v, [0])) * (rank + 1) + w

    for passes in (1, 2):
        seen, _ = in_a_session(passes, loss_of, sparse_as_dense=True)
        assert np.allclose(seen[-1][0], [-4 * mean, 0]), seen
    seen, _ = in_a_session(1, loss_of)
    assert np.allclose(seen[-1][0], [-4 * mean, 0])
    try:
        in_a_session(2, loss_of)
    except ValueError as error:
        assert "sparse_as_dense=True" in str(error)
    else:
        raise AssertionError("sparse gradients are added up")


def adasum(*vectors):
    a, b = (np.asarray(x, np.float64) for x in vectors)
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b


def check_adasum_of_changes():
    """On two ranks, Adasum combines the changes since the last exchange."""
    if size != 2:
        return
    changes = [-np.array([1.0, 1.0 + other]) for other in range(2)]
    for passes in (1, 2):
        seen, _ = in_a_session(passes, lambda v, w: v[0] + v[1] * (1.0 + rank) + w, op=hvd.Adasum)
        expected = 4 / passes * adasum(*(passes * change for change in changes))
        assert np.allclose(seen[-1][0], expected, atol=1e-5), (seen, expected)


def check_hooks():
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=rank + 1.0)
        v1.train.get_or_create_global_step()
        with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(size - 1)]) as session:
            assert session.run(v) == size


def check_broadcasts_in_place():
    """The result of broadcast_() has the root's values, although nothing else runs the broadcast."""
    with tf.Graph().as_default():
        v = [v1.get_variable(f"v{i}", initializer=[rank + 1.0 + i]) for i in range(2)]
        values = hvd.broadcast_(v, size - 1)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert np.array_equal(session.run(values[1]), [size + 1.0])
            assert np.array_equal(session.run(v), [[float(size)], [size + 1.0]])


for name in sorted(name for name in globals() if name.startswith("check_")):
    globals()[name]()
    print(f"rank {rank}: {name} passed", flush=True)
hvd.shutdown()
