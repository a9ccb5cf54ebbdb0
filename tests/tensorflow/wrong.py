"""Checks that wrong calls raise errors before anything is sent, eager, in tf.function, in Keras: one rank of a job."""

import pickle
import tempfile

import numpy as np
import tensorflow as tf

import hpccoll
import hpccoll.tensorflow as hvd
import hpccoll.tensorflow.keras as hvk
from hpccoll import _core
from hpccoll.tensorflow import own_errors, xla

hvd.init()
rank, size = hvd.rank(), hvd.size()


REFUSED = (ValueError, tf.errors.InvalidArgumentError)
"""The latter where it shows when a graph runs."""
passed = []
"""Calls that were not refused, or with another error text."""


def begun():
    return hpccoll.world().stats()["requests"]


def refused(call, *words, kinds=("eager", "function", "autograph"), error=REFUSED):
    """Check that the call is refused on this rank with these words, before anything is sent."""
    ways = {"eager": call, "function": tf.function(call, autograph=False), "autograph": tf.function(call)}
    for kind in kinds:
        before = begun()
        try:
            ways[kind]()
        except error as raised:
            if not all(word in str(raised) for word in words) or begun() != before:
                passed.append((kind, words, str(raised)))
        except Exception as raised:  # noqa: BLE001 - told below
            passed.append((kind, words, type(raised).__name__, str(raised)))
        else:
            passed.append((kind, words))


def check_dtypes():
    refused(lambda: hvd.allreduce(tf.constant(["a"])), "string")
    refused(lambda: hvd.broadcast(tf.constant(["a"]), 0), "string")
    refused(lambda: hvd.allreduce(tf.ones(1, tf.complex128), op=hvd.Max), "complex128")
    refused(lambda: hvd.allreduce(tf.quantization.quantize(tf.ones(1), 0.0, 1.0, tf.quint8)[0]), "quint8")
    refused(lambda: hvd.allgather(tf.ragged.constant([[1], [2, 3]])), "RaggedTensor")
    refused(lambda: hvd.allreduce(tf.sparse.from_dense([[1.0]])), "SparseTensor")
    refused(lambda: hvd.broadcast(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), 0), "IndexedSlices")


def check_slices():
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([4, 2]))
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        refused(lambda op=op: hvd.allreduce(slices, op=op, name="table"), "table", "Average and Sum",
                error=NotImplementedError)  # fmt: skip
    refused(lambda: hvd.allreduce(slices, prescale_factor=2.0), "factors", error=NotImplementedError)


def check_adasum():
    if size == 2:
        refused(lambda: hvd.allreduce(tf.constant([1]), op=hvd.Adasum, name="exact"), "int32")
    if size == 3:
        refused(lambda: hvd.allreduce(tf.ones(1), op=hvd.Adasum), "power of two", error=NotImplementedError)


def check_arguments():
    refused(lambda: hvd.broadcast(tf.ones(1), size), "root")
    refused(lambda: hvd.allreduce(tf.ones(1), op=77), "77")
    refused(lambda: hvd.allreduce(tf.ones(1), op=hvd.Max, prescale_factor="2"), "prescale")
    refused(lambda: hvd.allreduce(tf.ones(1), name=7), "name is 7")
    refused(lambda: hvd.allreduce(tf.ones(1), average=True, op=hvd.Sum), "average")
    refused(lambda: hvd.allreduce(tf.ones(1), compression="fp16"), "compression")
    refused(lambda: hvd.alltoall(tf.ones(size), splits=[1.5] * size), "splits")
    refused(lambda: hvd.reducescatter(tf.constant(1.0)), "dimension")
    refused(lambda: hvd.reducescatter(tf.ones(2), op=hvd.Adasum), "ADASUM", error=RuntimeError)
    refused(lambda: hvd.grouped_reducescatter([tf.ones(2)], op=hvd.Adasum), "ADASUM", error=ValueError)
    refused(lambda: hvd.broadcast_global_variables(0), "use broadcast_variables", kinds=["eager"], error=RuntimeError)


def check_tapes():
    v = tf.Variable([1.0])

    def gradient(**options):
        with tf.GradientTape() as tape:
            loss = v * v
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, [v])

    refused(lambda: gradient(groups=[[tf.Variable(1.0)]]), "groups", kinds=["eager"])
    refused(lambda: gradient(groups=0), "groups is 0")
    refused(lambda: gradient(groups=True), "groups is True")
    refused(lambda: gradient(gradient_predivide_factor=2.0, op=hvd.Sum), "gradient_predivide_factor")
    refused(lambda: gradient(gradient_predivide_factor=0.0), "gradient_predivide_factor is 0.0")
    refused(lambda: gradient(process_set=[0]), "process_set is [0]")
    refused(lambda: hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape())), "already")
    refused(lambda: hvd.DistributedGradientTape("tape"), "no tf.GradientTape")
    refused(lambda: hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=["dense"]), "local_layers")


def check_optimizers():
    made = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
    refused(lambda: hvd.DistributedOptimizer(made), "already", kinds=["eager"])
    refused(lambda: hvd.DistributedOptimizer(7), "tf.compat.v1.train or of Keras", kinds=["eager"])
    sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    refused(lambda: hvd.DistributedOptimizer(sgd, backward_passes_per_step=0), "backward_passes_per_step is 0")


def check_xla():
    program = tf.function(lambda: hvd.allgather(tf.ones(1), name="compiled"), jit_compile=True)
    refused(program, "allgather", "jit_compile=False", kinds=["eager"])


def check_keras():
    def model(optimizer, **options):
        made = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        made.compile(optimizer, "mse", **options)
        return made

    x = np.ones((4, 3), np.float32)
    sgd = hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    refused(lambda: hvk.DistributedOptimizer(sgd), "already", kinds=["eager"])
    refused(lambda: hvk.DistributedOptimizer("sgd"), "keras.optimizers.Optimizer", kinds=["eager"])
    refused(lambda: hvk.DistributedOptimizer(tf.keras.optimizers.SGD(), groups=[["a"], "b"]), "groups", kinds=["eager"])
    refused(lambda: hvk.DistributedOptimizer(tf.keras.optimizers.SGD(), op=hvd.Max, gradient_predivide_factor=2.0),
            "gradient_predivide_factor", kinds=["eager"])  # fmt: skip
    known, xla.problem = xla.problem, lambda: "there is a GPU"
    refused(lambda: model(sgd, jit_compile=True), "there is a GPU", "jit_compile=False", kinds=["eager"])
    late = model(sgd)
    late.jit_compile = True
    refused(lambda: late.fit(x, x[:, :1], verbose=0), "there is a GPU", "jit_compile=False", kinds=["eager"])
    model(tf.keras.optimizers.SGD(0.1), jit_compile=True).fit(x, x[:, :1], verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.keras"
        model(tf.keras.optimizers.SGD(0.1), jit_compile=True).save(path)
        refused(lambda: hvk.load_model(path), "jit_compile=False", kinds=["eager"])
    xla.problem = known
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        refused(lambda: hvk.DistributedOptimizer(tf.keras.optimizers.SGD()), "tf.distribute", kinds=["eager"])


def disagreed(call, *words):
    """Check that all ranks get one error, with the name, the ranks and the values."""
    for kind, way in (("eager", call), ("function", tf.function(call, autograph=False))):
        try:
            way()
        except tf.errors.FailedPreconditionError as error:
            text = str(error)
            assert kind != "eager" or isinstance(error, hpccoll.MismatchError)
            assert all(word in text for word in words), (kind, text)
        else:
            raise AssertionError(f"passes ({kind}): {words}")
        said = text.split("hpccoll.MismatchError: ")[-1].split("\n")[0]
        assert len(set(hvd.allgather_object(said))) == 1, said


def check_what_ranks_disagree_on():
    odd = rank == 1
    disagreed(lambda: hvd.allreduce(tf.ones(2 + odd), name="d1"), "d1", "rank 1 has float32[3]")
    disagreed(lambda: hvd.allreduce(tf.ones(2, tf.float64 if odd else tf.float32), name="d2"), "d2", "float64[2]")
    disagreed(lambda: hvd.allreduce(tf.ones(2), op=hvd.Max if odd else hvd.Min, name="d3"), "d3", "MAX")
    disagreed(lambda: hvd.broadcast(tf.ones(2), int(odd), name="d4"), "d4", "root")
    disagreed(lambda: hvd.allgather(tf.ones([1, 2 + odd]), name="d5"), "d5", "rank 1")
    disagreed(lambda: hvd.allreduce(tf.ones(2), prescale_factor=1.0 + odd, name="d6"), "d6", "rank 1")


def check_names_twice():
    """The second operation of a name in one program gets a number."""
    x = tf.ones(1)

    @tf.function
    def twice():
        return hvd.allreduce(x, name="twice") + hvd.allreduce(2 * x, name="twice")

    assert twice() == 3


def check_kinds_of_errors():
    """An eager error is the library's and TensorFlow's; it can be pickled, and copied as Keras does."""
    try:
        hvd.broadcast(tf.ones(1), size, name="kinds")
    except tf.errors.InvalidArgumentError as error:
        for one in (error, pickle.loads(pickle.dumps(error)), type(error)(None, None, str(error), error.error_code)):
            assert isinstance(one, hpccoll.InvalidArgumentError) and isinstance(one, ValueError)
            assert "kinds" in one.message == str(one) == one.args[0] and one.error_code == 3
    else:
        raise AssertionError("a root that is not there passes")
    assert set(own_errors.KINDS) >= {getattr(hpccoll, name) for code, _, _, name in _core.STATUSES if code}


def check_one_rank_refuses():
    """The others have an error that names the rank, and the next call of all is matched. Sums as NumPy has them."""
    for way in (lambda call: call, tf.function):
        total = way(lambda x: hvd.allreduce(x, op=hvd.Sum))
        for number in range(2):
            try:
                total(tf.constant(["a"]) if rank == 0 else tf.ones(1))
            except (ValueError, tf.errors.OpError) as raised:
                assert ("rank 0 has refused this call" in str(raised)) == (rank != 0), raised
            else:
                raise AssertionError("passes, though rank 0 has refused it")
            assert total(tf.fill([1], rank + 1.0)) == size * (size + 1) / 2, number


def check_not_initialized():
    program = tf.function(lambda: hvd.allreduce(tf.ones(1), name="later"))
    program()
    hvd.shutdown()
    for call, error in (
        (lambda: hvd.allreduce(tf.ones(1)), ValueError),
        (tf.function(lambda: hvd.allreduce(tf.ones(1))), hpccoll.HpccollError),
        (program, tf.errors.FailedPreconditionError),
    ):
        try:
            call()
        except error as raised:
            assert "init()" in str(raised), raised
        else:
            raise AssertionError("passes without init()")
    hvd.init()


for name in sorted(name for name in globals() if name.startswith("check_")):
    globals()[name]()
    print(f"rank {rank}: {name} passed", flush=True)
assert not passed, "\n".join(map(str, passed))
hvd.shutdown()
