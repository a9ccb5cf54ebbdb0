# SPDX-License-Identifier: Apache-2.0
"""The program of each rank of test_mxnet.py: compares functions with NumPy, and trainings with one process."""

import sys
from pathlib import Path

import numpy as np

import hpccoll
import hpccoll.mxnet as hvd

import mxnet as mx  # isort: skip - hpccoll.mxnet gives NumPy the name that MXNet's import needs
from mxnet import autograd, gluon  # isort: skip

sys.path.insert(0, str(Path(__file__).parents[1]))
import horovod_names

STEPS = 20


def check_names() -> None:
    """All names of Horovod's exist, or raise an error that names the replacement."""
    assert horovod_names.missing(hvd, "mxnet") == []


def check_functions() -> None:
    rank, size = hvd.rank(), hvd.size()
    ranks = range(size)
    for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8", "int8"):
        x = mx.nd.array(np.arange(6).reshape(2, 3) + rank, dtype=dtype)
        total = sum(np.arange(6).reshape(2, 3) + r for r in ranks)
        np.testing.assert_array_equal(hvd.allreduce(x, op=hvd.Sum, name=f"sum {dtype}").asnumpy(), total)
        rows = hvd.allgather(x[: rank + 1] if rank < 2 else x).asnumpy()
        assert rows.dtype == np.dtype(dtype) and rows.shape == (sum(min(r + 1, 2) for r in ranks), 3)
        assert hvd.broadcast(x, 0, name=f"broadcast {dtype}").asnumpy()[0, 1] == 1
    x = mx.nd.ones((4, size)) * (rank + 1)
    mean = (size + 1) / 2
    assert hvd.allreduce(x, True, "positional", -1).asnumpy()[0, 0] == mean
    assert hvd.allreduce_(x, name="in place").asnumpy()[0, 0] == x.asnumpy()[3, 0] == mean
    a, b = hvd.grouped_allreduce([x, mx.nd.ones((1,))], op=hvd.Sum, priority=3)
    assert (a.asnumpy()[0, 0], b.asnumpy()[0]) == (mean * size, size)
    for name in ("allreduce", "allreduce_", "allgather", "reducescatter"):
        assert getattr(hvd, f"grouped_{name}")([]) == []  # as Horovod for MXNet does
    y = mx.nd.array(np.repeat(np.arange(size), 2))
    assert hvd.alltoall(y).asnumpy().tolist() == [rank] * 2 * size
    assert hvd.reducescatter(y, op=hvd.Sum).asnumpy().tolist() == [rank * size] * 2
    assert hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}
    assert hvd.allgather_object(rank) == list(ranks)


def check_that_memory_is_not_read_too_early() -> None:
    """MXNet computes in its own threads: the result of a long chain is sent complete, and is not overwritten later."""
    for _ in range(10):
        x = mx.nd.ones((300, 300))
        for _ in range(10):
            x = mx.nd.dot(x, mx.nd.ones((300, 300))) / 300
        y = x * 2  # reads x while the library wants to overwrite it
        hvd.allreduce_(x, op=hvd.Sum, name="late")
        assert float(y.max().asscalar()) == 2 and float(x.min().asscalar()) == hvd.size()


def check_bad_input() -> None:
    refusals = [
        (lambda: hvd.allreduce(mx.nd.ones(3 + hvd.rank()), name="shapes"), hpccoll.MismatchError),
        (lambda: hvd.broadcast_parameters({f"w{hvd.rank()}": mx.nd.ones(2)}), hpccoll.MismatchError),
        (lambda: hvd.allreduce(np.ones(3)), hpccoll.InvalidArgumentError),
        (lambda: hvd.allreduce(mx.nd.ones((3, 2)).tostype("row_sparse")), hpccoll.UnsupportedError),
        (lambda: hvd.broadcast_parameters([1]), hpccoll.InvalidArgumentError),
        (lambda: hvd.DistributedOptimizer("sgd"), hpccoll.InvalidArgumentError),
        (lambda: hvd.DistributedOptimizer(mx.optimizer.SGD(), num_groups=-1), hpccoll.InvalidArgumentError),
        (lambda: hvd.DistributedTrainer({}, "sgd", num_groups=[[1]]), hpccoll.InvalidArgumentError),
        (lambda: hvd.allreduce(mx.nd.ones(1), priority=0, no="such"), TypeError),
    ]
    for call, error in refusals[2 * (hvd.size() == 1) :]:  # one rank agrees with itself
        try:
            call()
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


X = np.random.RandomState(0).randn(24, 8).astype("float32")
Y = X[:, :1] * 2 + 1


def network(seed: int) -> gluon.nn.HybridSequential:
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(1))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def train(net: gluon.nn.HybridSequential, trainer: gluon.Trainer, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    x, y = mx.nd.array(x), mx.nd.array(y)
    for _ in range(STEPS):
        with autograd.record():
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        trainer.step(1)
    return [p.data().asnumpy() for p in net.collect_params().values()]


def check_trainings() -> None:
    rank, size = hvd.rank(), hvd.size()
    alone = network(seed=0)
    alone(mx.nd.array(X[:1]))
    expected = train(alone, gluon.Trainer(alone.collect_params(), "sgd", {"learning_rate": 0.1}), X, Y)
    for options in ({}, {"num_groups": 2, "gradient_predivide_factor": 2.0, "prefix": "again."}):
        net = network(seed=0 if rank == 0 else 1)
        hvd.broadcast_parameters(net.collect_params())  # the shapes are not known yet
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, **options)
        got = train(net, trainer, X[rank::size], Y[rank::size])
        for mine, one, each in zip(got, expected, zip(*hvd.allgather_object(got), strict=True), strict=True):
            np.testing.assert_allclose(mine, one, rtol=1e-4, atol=1e-5)
            assert all(np.array_equal(mine, other) for other in each)
    net = network(seed=0)
    net(mx.nd.array(X[:1]))
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(
        net.collect_params(), mx.optimizer.SGD(learning_rate=0.1), compression=hvd.Compression.fp16
    )
    for mine, one in zip(train(net, trainer, X[rank::size], Y[rank::size]), expected, strict=True):
        np.testing.assert_allclose(mine, one, rtol=0.05, atol=0.01)


def check_optimizer_of_a_module() -> None:
    rank, size = hvd.rank(), hvd.size()
    for groups in (0, 2):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5), num_groups=groups)
        assert optimizer.learning_rate == 0.5
        weights = [mx.nd.zeros((3,)), mx.nd.zeros((2,))]
        states = [optimizer.create_state(i, w) for i, w in enumerate(weights)]
        optimizer.update([0, 1], weights, [mx.nd.ones((3,)) * rank, mx.nd.ones((2,))], states)
        assert weights[0].asnumpy().tolist() == [-0.5 * (size - 1) / 2] * 3
        assert weights[1].asnumpy().tolist() == [-0.5] * 2


def check_that_other_numbers_of_groups_are_an_error() -> None:
    """Ranks with other groups wait for different names; all get one error, and the next step is made."""
    rank, size = hvd.rank(), hvd.size()
    if size == 1:
        return
    weights, averaged = [mx.nd.zeros((3,)) for _ in range(4)], [mx.nd.ones((3,)) * rank for _ in range(4)]
    net = network(seed=0)
    net(mx.nd.array(X[:1]))
    for first, other, said in ((1, 3, "3"), (2, 4, "4"), (2, 0, "4")):  # 0: a group for each of the four gradients
        words = f"gradients and their groups: rank 0 has '{first} groups' where rank 1 has '{said} groups'"
        groups = first if rank == 0 else other
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(), num_groups=groups)
        states = [optimizer.create_state(i, w) for i, w in enumerate(weights)]
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", num_groups=groups)
        for step in (
            lambda optimizer=optimizer, states=states: optimizer.update([0, 1, 2, 3], weights, averaged, states),
            lambda trainer=trainer: train(net, trainer, X, Y),
        ):
            try:
                step()
            except hpccoll.MismatchError as error:
                assert words in str(error), error
            else:
                raise AssertionError(f"{first} and {other} groups pass")
    assert [float(each[0].asscalar()) for each in averaged] == [rank] * 4


def check_sparse_gradients() -> None:
    """The sparse gradients of an embedding have the rows of all ranks."""
    rank, size = hvd.rank(), hvd.size()
    table = gluon.nn.Embedding(10, 2, sparse_grad=True)
    table.initialize(mx.init.Zero())
    trainer = hvd.DistributedTrainer(table.collect_params(), "sgd", {"learning_rate": 1.0})
    with autograd.record():
        loss = table(mx.nd.array([rank, 9])).sum()
    loss.backward()
    trainer.step(1)
    expected = np.zeros((10, 2), "float32")
    expected[:size] = -1 / size
    expected[9] = -1
    np.testing.assert_allclose(table.weight.data().asnumpy(), expected, rtol=1e-6)


def main() -> None:
    hvd.init()
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            check()
            if hvd.rank() == 0:
                print(name, "passed", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    sys.exit(main())
