"""Local layers, groups, process sets, facts, objects, lost operations: one rank of a job of test_jobs.py."""

import importlib
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd
import hpccoll.tensorflow.keras as hvk
from hpccoll import not_there

sys.path.insert(0, str(Path(__file__).parents[1]))
import horovod_names

FIRST = hvd.ProcessSet([0])
ENDS = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[FIRST, ENDS])
rank, size = hvd.rank(), hvd.size()
mean = (size + 1) / 2


def eager_and_traced(function):
    return [function(), tf.function(function)()]


def check_names():
    """All names of Horovod's exist, or raise an error that names the replacement."""
    modules = {"tensorflow": hvd, "tensorflow.mpi_ops": hvd.mpi_ops, "tensorflow.elastic": hvd.elastic}
    for name in ("tensorflow.data.compute_service", "tensorflow.data.compute_worker"):
        modules[name] = importlib.import_module(f"hpccoll.{name}")
    for front_end, module in {**modules, "tensorflow.keras": hvk}.items():
        assert horovod_names.missing(module, front_end) == [], front_end
    for module in (name for name in not_there.INSTEAD if name.startswith("hpccoll.tensorflow.")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            assert not_there.INSTEAD[module] in str(error)
        else:
            raise AssertionError(f"{module} is there")
    assert hvd.mpi_ops._executing_eagerly() and hvd.gpu_available("tensorflow") is False


def check_facts():
    def facts():
        return [
            hvd.rank_op(),
            hvd.size_op(),
            hvd.local_rank_op(),
            hvd.local_size_op(),
            hvd.size_op(ENDS.process_set_id),
            hvd.process_set_included_op(FIRST.process_set_id),
        ]

    expected = [rank, size, hvd.local_rank(), hvd.local_size(), 2, int(rank == 0)]
    for found in eager_and_traced(facts):
        assert all(one.dtype == tf.int32 for one in found)
        assert [int(one) for one in found] == expected


def check_process_sets():
    def in_sets():
        x = tf.constant([rank + 1.0])
        y = hvd.allreduce(x, op=hvd.Sum, process_set=ENDS, name="ends")
        gathered = hvd.allgather(x, process_set=ENDS, name="rows")
        root = hvd.broadcast(x, 1, process_set=ENDS, name="root")
        alone = hvd.allreduce(x, process_set=FIRST, name="alone") if rank == 0 else x
        return tf.concat([y, gathered, root, alone], 0)

    if rank < 2:
        for found in eager_and_traced(in_sets):
            assert np.array_equal(found, [3, 1, 2, 2, rank + 1])
    try:
        hvd.allreduce(tf.ones(1), process_set=FIRST)
    except ValueError:
        assert rank != 0
    else:
        assert rank == 0
    added = hvd.add_process_set([size - 1])
    assert hvd.process_set_by_id(added.process_set_id) is added
    assert hvd.remove_process_set(added)


def check_groups():
    a, b, c = (tf.Variable([1.0 * i], name=f"v{i}") for i in range(3))

    def gradients(groups):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((a + 2 * b + 3 * c) * (rank + 1))
        return hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, [a, b, c])

    for groups in (2, [[a, c]], [[c], [b, a]]):
        for found in eager_and_traced(lambda groups=groups: gradients(groups)):
            assert np.allclose(np.ravel(found), [mean, 2 * mean, 3 * mean])
    for wrong in ([[tf.Variable(1.0)]], 0):
        try:
            gradients(wrong)
        except ValueError:
            continue
        raise AssertionError("wrong groups pass")
    a, b, c = (tf.Variable([1.0 * i], name=f"w{i}") for i in range(3))
    for differing in ([[a, b], [c]] if rank == 0 else [[a, c], [b]], [[a, b]] if rank == 0 else [[c, b]]):
        for call in (gradients, tf.function(gradients)):
            try:
                call(differing)
            except hpccoll.MismatchError as error:
                assert "gradients and their groups: rank 0 has " in str(error), error
                assert "w0" in str(error), error
            else:
                raise AssertionError("a is added to c")


def check_groups_with_local_variables():
    """A variable of a group may be one whose gradient stays on its rank."""
    a, b, c = (tf.Variable([1.0 * i], name=f"x{i}") for i in range(3))

    def gradients(groups):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((a + 2 * b + 3 * c) * (rank + 1))
        tape = hvd.DistributedGradientTape(tape, groups=groups)
        tape.register_local_source(b)
        return tape.gradient(loss, [a, b, c])

    for groups in ([[a, b, c]], [[b], [a, c]], 1):
        for found in eager_and_traced(lambda groups=groups: gradients(groups)):
            assert np.allclose(np.ravel(found), [mean, 2 * (rank + 1) / size, 3 * mean])


def check_local_layers():
    shared, own = tf.keras.layers.Dense(1, use_bias=False), tf.keras.layers.Dense(1, use_bias=False)
    x = tf.ones([1, 2]) * (rank + 1.0)
    shared(x), own(x)

    def gradients(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(shared(x) + own(x))
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=[own], **options)
        return tape.gradient(loss, [*shared.trainable_weights, *own.trainable_weights])

    for scaled in (True, False):
        for found in eager_and_traced(lambda scaled=scaled: gradients(scale_local_gradients=scaled)):
            assert np.allclose(found[0], mean)
            assert np.allclose(found[1], (rank + 1) / size if scaled else rank + 1)


def check_objects():
    last = size - 1
    assert hvd.broadcast_object({"of": rank}, last) == {"of": last}
    assert hvd.broadcast_object_fn(root_rank=last, name="made")([rank]) == [last]
    assert hvd.allgather_object(rank) == list(range(size))
    if rank < 2:
        assert hvd.broadcast_object(rank, 1, process_set=ENDS) == 1
    v = tf.Variable([float(rank)])
    k = keras.Variable([float(rank)], name="k")
    for found in eager_and_traced(lambda: hvd.broadcast_([v, k], last)):
        assert np.array_equal(found, [[last], [last]])
        assert np.array_equal([v, k], [[last], [last]])


def lost_operation():
    """An operation fails on all ranks, after rank 0 has begun another one that the others never begin: they go on."""

    @tf.function
    def program(x):
        wrong = hvd.allreduce(x, op=hvd.Sum, name="wrong")
        other = hvd.allreduce(x[:2] + (wrong[0] if rank else 0.0), op=hvd.Sum, name="other")
        return wrong, other

    try:
        program(tf.ones(2 + rank))
    except tf.errors.FailedPreconditionError as error:
        assert "rank 1 has float32[3]" in str(error), error
    else:
        raise AssertionError("different shapes pass")
    try:
        hvd.allreduce(tf.ones(1), name="next")
    except hvd.HorovodInternalError as error:
        print(f"rank {rank}: then {type(error).__name__}: {error}", flush=True)
    else:
        raise AssertionError("an operation that rank 0 waits for has vanished")


if sys.argv[1:] == ["lost"]:
    lost_operation()
else:
    for name in sorted(name for name in globals() if name.startswith("check_")):
        globals()[name]()
        print(f"rank {rank}: {name} passed", flush=True)
    hvd.shutdown()
