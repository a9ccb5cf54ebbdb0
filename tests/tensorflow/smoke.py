"""The quick test of `make test`: rank 0 runs TensorFlow, rank 1 makes the same calls with NumPy's arrays.

So one process imports TensorFlow, which takes 5 s of its processor.
"""

import threading

import numpy as np

import hpccoll
from hpccoll.tools.data_service import ComputeClient, ComputeService

PLACES = ("3", "1", "2")
"""Names of operations of a graph. Rank 1 has them in another order."""


def tensors():
    import tensorflow as tf

    import hpccoll.tensorflow as hvd

    tf.config.threading.set_inter_op_parallelism_threads(1)
    v = tf.Variable([1.0, 2.0], name="v")
    assert np.array_equal(hvd.allreduce(tf.constant([1, 2]), op=hvd.Sum, name="eager"), [11, 12])

    @tf.function
    def program(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * x)
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [v])
        sums = [hvd.allreduce(x * float(place), op=hvd.Sum, name=place) for place in PLACES]
        return gradient, hvd.allgather(x, name="rows"), sums

    for _ in range(2):
        gradient, rows, sums = program(tf.constant([1.0, 1.0]))
        assert np.array_equal(gradient, [5.5, 5.5])
        assert np.array_equal(rows, [1.0, 1.0, 7.0])
        assert [float(one[0]) for one in sums] == [10 + float(place) for place in PLACES]
    wrong = tf.function(lambda x: hvd.allreduce(x, name="wrong"))
    for call, failure in ((wrong, tf.errors.FailedPreconditionError), (wrong.python_function, hpccoll.MismatchError)):
        try:
            call(tf.ones(3))
        except failure as error:
            assert "rank 0 has float32[3] AVERAGE, rank 1 has float32[2]" in str(error), error
        else:
            raise AssertionError("different shapes pass")
    step = tf.function(lambda: hvd.allreduce(tf.ones(1), name="step"))
    assert steps_until_stop(step) == 8
    assert served(tf.data.Dataset.range(10).batch(4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def served(dataset):
    """The batches that a dispatcher and a worker of this rank send; the worker of rank 1 exists only by its name."""
    from hpccoll.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

    with ComputeService(1, 2, nics=["lo"]) as service:
        config = TfDataServiceConfig(
            dispatchers=1, workers_per_dispatcher=2, dispatcher_side="compute", addresses=service.addresses(),
            key=service.key,
        )  # fmt: skip
        hpccoll.broadcast_object((config.addresses, config.key))
        servers = threading.Thread(target=compute_worker_fn, args=(config,), daemon=True)
        servers.start()
        batches = [batch.tolist() for batch in dataset.send_to_data_service(config, 0).as_numpy_iterator()]
    servers.join(30)
    assert not servers.is_alive()
    return batches


def steps_until_stop(step):
    """Rank 1 asks all to stop before its eighth step; rank 0 has made operations only in a compiled program."""
    with hpccoll.preemption(()) as p:
        for number in range(1000):
            if hpccoll.rank() == 1 and number == 7:
                p.ask()
            step()
            if p.should_stop():
                return number + 1
    raise AssertionError("the rank was not stopped")


def arrays():
    ten, seven = np.full(2, 10, np.float32), np.full(1, 7, np.float32)
    hpccoll.allreduce(ten.astype(np.int32), name="allreduce.eager")
    for _ in range(2):
        handles = [hpccoll.allreduce_async(ten, name=f"allreduce.{place}") for place in reversed(PLACES)]
        handles.append(hpccoll.allgather_async(seven, name="allgather.rows"))
        handles.append(hpccoll.allreduce_async(ten, hpccoll.AVERAGE, name="allreduce.gradient.v"))
        for handle in handles:
            handle.wait()
    for _ in range(2):
        try:
            hpccoll.allreduce(ten, hpccoll.AVERAGE, name="allreduce.wrong")
        except hpccoll.MismatchError:
            continue
        raise AssertionError("different shapes pass")
    one = np.ones(1, np.float32)
    assert steps_until_stop(lambda: hpccoll.allreduce(one, hpccoll.AVERAGE, name="allreduce.step")) == 8
    ComputeClient(*hpccoll.broadcast_object(None)).register_worker_for_dispatcher(0, 1)
    for _ in ("client", "dispatcher", "worker"):
        hpccoll.allgather_object("", name="allgather_object.data_service.started")


hpccoll.init()
if hpccoll.rank() == 0:
    tensors()
    print("rank 0 passed", flush=True)
else:
    arrays()
hpccoll.shutdown()
