"""Operations and training of `hpccoll.tensorflow`, eager and in tf.function: one rank of a job of test_jobs.py."""

import sys
import threading

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd
from hpccoll.tensorflow import kernels

hvd.init()
rank, size = hvd.rank(), hvd.size()
total = size * (size + 1) / 2


def operations():
    x = tf.constant([1.0, 2.0]) * (rank + 1)
    rows, counts = hvd.alltoall(tf.range(2 * size), splits=[2] * size)
    return {
        "sum": hvd.allreduce(x, op=hvd.Sum),
        "again": hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16),
        "mean": hvd.allreduce(tf.constant([1, 2, 5]) * (rank + 1)),
        "scaled": hvd.allreduce(tf.cast(x, tf.bfloat16), op=hvd.Sum, prescale_factor=0.5),
        "adasum": hvd.allreduce(x, op=hvd.Adasum, name="adasum") if size == 2 else x,
        "group": hvd.grouped_allreduce([x, tf.cast(x, tf.float64)], op=hvd.Max, name="group"),
        "gathered": hvd.allgather(tf.fill([rank + 1, 2], rank)),
        "root": hvd.broadcast(x, size - 1, name="same"),
        "root again": hvd.broadcast(x + 1, size - 1, name="same"),
        "rows": rows,
        "counts": counts,
        "share": hvd.reducescatter(tf.ones([size + 1, 2]), op=hvd.Sum),
        "constant": hvd.allreduce(tf.constant(float(rank + 1)), op=hvd.Sum),
        "size": hvd.size_op(),
    }


def derivatives(v):
    def loss():
        x = hvd.allreduce(v * v, op=hvd.Sum) + hvd.reducescatter(tf.stack([v] * size), op=hvd.Sum)[0]
        y = hvd.allgather(v) + hvd.alltoall(tf.concat([v * 3] * size, 0))
        return tf.reduce_sum(x) + tf.reduce_sum(y) + tf.reduce_sum(hvd.broadcast(v, 0))

    with tf.GradientTape() as tape:
        y = loss()
    return tape.gradient(y, v)


def check_operations():
    eager = operations()
    assert np.allclose(eager["sum"], [total, 2 * total])
    assert eager["gathered"].shape == [int(total), 2]
    assert np.array_equal(eager["rows"], [2 * rank, 2 * rank + 1] * size)
    program = tf.function(operations)
    for _ in range(2):
        traced = program()
        for name, value in eager.items():
            for one, other in zip(tf.nest.flatten(value), tf.nest.flatten(traced[name]), strict=True):
                assert one.dtype == other.dtype and np.array_equal(one, other), (name, one, other)
    names = [
        op.get_attr("tensor_name").decode()
        for op in program.get_concrete_function().graph.get_operations()
        if op.type.startswith("Hpccoll")
    ]
    assert len(set(names)) == len(names), names
    assert all("operations.py" in name or "autograph" in name for name in names if " at " in name), names
    assert len({tuple(each) for each in hvd.allgather_object(names)}) == 1


def check_derivatives():
    v = tf.Variable([1.0 * (rank + 1), 2.0])
    assert np.array_equal(derivatives(v), tf.function(derivatives)(v))


def check_constants_are_not_folded():
    """Rank 0 runs a program of constants again while the others call the operation eagerly."""

    def constant():
        return hvd.allreduce(tf.constant(rank + 1.0), op=hvd.Sum, name="constant")

    program = tf.function(constant)
    assert program() == total
    assert (program() if rank == 0 else constant()) == total


def check_every_operation_runs():
    """Rank 0 alone uses the result."""

    @tf.function
    def program(x):
        y = hvd.allreduce(x, op=hvd.Sum, name="used on rank 0")
        return y if rank == 0 else x

    assert program(tf.ones(1)) == (size if rank == 0 else 1)


def check_the_functions_for_arrays():
    """hpccoll's own functions take tensors and return tensors."""
    for x in (tf.range(3.0) + rank, tf.cast(tf.range(3) + rank, tf.bfloat16), tf.Variable(tf.range(3.0) + rank)):
        result = hpccoll.allreduce(x, hpccoll.SUM)
        assert tf.is_tensor(result) and result.dtype == x.dtype
        assert np.array_equal(tf.cast(result, tf.float32), size * np.arange(3.0) + total - size)
    assert hpccoll.allgather(tf.fill([rank + 1], rank)).shape == [int(total)]
    try:
        tf.function(lambda x: hpccoll.allreduce(x), autograph=False)(tf.ones(2))
    except hpccoll.UnsupportedError as error:
        assert "is being traced: use" in str(error)
    else:
        raise AssertionError("a symbolic tensor passes")


def check_loops():
    """Iterations may overlap, and must not be mixed up."""

    @tf.function
    def added_up():
        result = tf.constant(0.0)
        for i in tf.range(10):
            result += hvd.allreduce(tf.cast(i, tf.float32), op=hvd.Sum)
        return result

    assert added_up() == 45 * size


def check_orders():
    """The ranks emit the same operations in other orders; TensorFlow has two threads."""
    order = np.random.RandomState(rank).permutation(12).tolist()

    @tf.function
    def program(x):
        results = {i: hvd.allreduce(x * i, op=hvd.Sum, name=f"order.{i}") for i in order}
        return [results[i] for i in range(12)]

    for _ in range(3):
        assert [float(y[0]) for y in program(tf.ones(3))] == [i * size for i in range(12)]


def check_errors():
    program = tf.function(lambda x: hvd.allreduce(x, name="wrong"))
    for call in (lambda x: hvd.allreduce(x, name="wrong"), program):
        try:
            call(tf.ones(2 + rank))
        except (hpccoll.MismatchError, tf.errors.FailedPreconditionError) as error:
            assert "rank 0 has float32[2] AVERAGE, rank 1 has float32[3]" in str(error)
        else:
            raise AssertionError("different shapes pass")
    for wrong in (
        lambda: hvd.broadcast(tf.ones(1), size),
        lambda: hvd.allreduce(tf.constant("text")),
        lambda: hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), [0]), op=hvd.Max),
        lambda: hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape())),
    ):
        for call in (wrong, tf.function(wrong, autograph=False)):
            try:
                call()
            except ValueError as error:
                assert isinstance(error, hpccoll.HpccollError)
            else:
                raise AssertionError("a wrong argument passes")


def check_tapes():
    weights, table, own = tf.Variable([1.0 + rank]), tf.Variable(tf.ones([4, 2]) * rank), tf.Variable(2.0)
    hvd.broadcast_variables([weights, table], root_rank=0)
    assert np.array_equal(weights, [1.0]) and np.array_equal(table, np.zeros([4, 2]))

    def gradients(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * (rank + 1) * own) + tf.reduce_sum(tf.gather(table, [rank, 3]))
        tape = hvd.DistributedGradientTape(tape, **options)
        tape.register_local_source(own)
        return tape.gradient(loss, [weights, table, own])

    for options in ({}, {"groups": 1}, {"gradient_predivide_factor": 2.0}, {"compression": hvd.Compression.fp16}):
        for call in (gradients, tf.function(lambda options=options: gradients(**options))):
            of_weights, of_table, of_own = call(**options) if call is gradients else call()
            assert np.allclose(of_weights, [2.0 * total / size])
            rows = tf.math.unsorted_segment_sum(of_table.values, of_table.indices, 4).numpy()
            assert np.allclose(rows[3], 1.0) and np.allclose(rows[:size], 1 / size)
            assert np.allclose(of_own, (rank + 1) / size)


def check_worlds():
    """A program outlives its World."""
    program = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="outlives"))
    assert program(tf.ones(1)) == size
    hvd.shutdown()
    try:
        program(tf.ones(1))
    except tf.errors.FailedPreconditionError as error:
        assert "call hpccoll.init() first" in str(error)
    hvd.init()
    assert program(tf.ones(1)) == size


def check_memory():
    """An eager result reuses the memory of another one; shutdown() frees the rest."""
    memory = kernels.extension()

    def address(x):
        return memory.read(memoryview(x))[0]

    names = [name for name in hpccoll.arrays.NAMES if hasattr(tf, name)]
    for name in names:
        x = tf.cast(tf.constant([[1, 0, 1]] * (rank + 1)), getattr(tf, name))
        results = [hvd.allgather(x), hvd.broadcast(x[:1], 0), hvd.allreduce(x[:1], op=hvd.Sum)]
        for result in results:
            assert result.dtype == x.dtype
            assert name == "bfloat16" or address(result) % 64 == 0
        assert results[0].shape == [int(total), 3]
    x = tf.ones([1000, 100])
    first = hvd.allreduce(x, op=hvd.Sum)
    used, doubled = address(first), first * 2
    thread = threading.Thread(target=lambda: hvd.allreduce(tf.ones(7), op=hvd.Sum, name="in a thread"))
    thread.start()
    thread.join()
    del first
    second = hvd.allreduce(x, op=hvd.Sum)
    assert address(second) == used and np.array_equal(doubled, 2.0 * second)
    variable = tf.Variable(second)  # it may take the memory over
    del second
    other = hvd.allreduce(x * 3, op=hvd.Sum)
    assert np.array_equal(variable, doubled / 2) and np.array_equal(other, 3.0 * variable)
    del other
    assert memory.idle_memory() > 0
    hvd.shutdown()
    assert memory.idle_memory() == 0
    assert np.array_equal(variable, doubled / 2)
    hvd.init()


tf.config.threading.set_inter_op_parallelism_threads(2)
for name in sys.argv[1:] or sorted(name for name in globals() if name.startswith("check_")):
    globals()[name]()
    print(f"rank {rank}: {name} passed", flush=True)
hvd.join()
hvd.shutdown()
