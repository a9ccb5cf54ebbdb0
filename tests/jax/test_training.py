# SPDX-License-Identifier: Apache-2.0
"""Training with optax: a stated accuracy, equal weights on all ranks, gradients added up over passes."""

import resource
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental.sparse import BCOO

import hpccoll
import hpccoll.jax as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job")]


def equal_on_all_ranks(tree):
    mine = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    return all(np.array_equal(mine, other) for other in hvd.allgather_object(mine))


def digits():
    """The handwritten digits of scikit-learn: this rank's share of the training set, and the test set."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1440], order[1440:]
    mine = train[hvd.rank() :: hvd.size()][: 1440 // hvd.size()]
    return images[mine], labels[mine], images[test], labels[test]


def network(params, x):
    x = jax.lax.conv_general_dilated(x, params["filters"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x)[:, ::2, ::2].reshape(len(x), -1)
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "options", [{"groups": 2}, {"compression": hvd.Compression.fp16}, {"compression": hvd.Compression.bf16}]
)
def test_a_network_learns_digits(options):
    x, y, test_x, test_y = digits()
    keys = jax.random.split(jax.random.key(hvd.rank()), 3)  # other weights on each rank, until the broadcast
    params = {
        "filters": jax.random.normal(keys[0], (3, 3, 1, 8)) * 0.3,
        "hidden": jax.random.normal(keys[1], (128, 32)) * 0.1,
        "out": jax.random.normal(keys[2], (32, 10)) * 0.1,
    }
    params = hvd.broadcast_parameters(params, root_rank=0)
    assert equal_on_all_ranks(params)
    optimizer = hvd.DistributedOptimizer(optax.adam(0.003), **options)
    state = optimizer.init(params)

    def loss(params, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(network(params, x), y).mean()

    @jax.jit
    def step(params, state, x, y):
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    batch = 64 // hvd.size()
    for _ in range(12):
        for begin in range(0, len(x) - batch + 1, batch):
            params, state = step(params, state, x[begin : begin + batch], y[begin : begin + batch])
    accuracy = float((network(params, test_x).argmax(1) == test_y).mean())
    assert equal_on_all_ranks(params)
    assert accuracy > 0.93, accuracy


def test_an_uneven_last_batch_ends_with_join():
    """Each rank has one step more than the rank before it; a rank that has joined gives zeros."""
    step = jax.jit(lambda g: hvd.allreduce_gradients(g, hvd.Sum, name="uneven"))
    for i in range(2 + hvd.rank()):
        result = step({"w": jnp.ones(3)})
        np.testing.assert_array_equal(result["w"], sum(2 + rank > i for rank in range(hvd.size())))
    assert hvd.join() == hvd.size() - 1


def test_gradients_of_several_passes_are_combined_once():
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=2)
    params = {"w": jnp.zeros(3)}
    state = optimizer.init(params)
    step = jax.jit(lambda g, state: optimizer.update(g, state, params))
    before = hpccoll.world().stats()["requests"]
    first, state = step({"w": jnp.full(3, 2.0 * hvd.rank())}, state)
    second, state = step({"w": jnp.full(3, 4.0 * hvd.rank())}, state)
    jax.block_until_ready((first, second))
    assert hpccoll.world().stats()["requests"] == before + 1
    np.testing.assert_allclose(first["w"], 0)
    np.testing.assert_allclose(second["w"], -3.0 * (hvd.size() - 1) / 2)
    with pytest.raises(ValueError, match="is a DistributedOptimizer already"):
        hvd.DistributedOptimizer(optimizer)


def test_gradients_of_few_bits_are_added_up_as_in_optax():
    """Sums of bfloat16 stand still at 256, and float16 has no 80000; optax.MultiSteps adds up in float32."""
    for dtype, value, passes in ((jnp.bfloat16, 1.0, 300), (jnp.float16, 40000.0, 2)):
        optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=passes)
        params = {"w": jnp.zeros(2, dtype)}
        step = jax.jit(lambda g, state, optimizer=optimizer, params=params: optimizer.update(g, state, params))
        state = optimizer.init(params)
        for _ in range(passes):
            updates, state = step({"w": jnp.full(2, value, dtype)}, state)
        assert updates["w"].dtype == dtype
        np.testing.assert_array_equal(np.asarray(updates["w"], float), -value)


def test_an_optimizer_with_a_state_of_other_dtypes_makes_several_passes():
    """Adam with a float32 moment of bfloat16 weights, whose updates are float32; and its state keeps its dtypes."""
    optimizer = hvd.DistributedOptimizer(optax.adam(0.1, mu_dtype=jnp.float32), backward_passes_per_step=2)
    alone = optax.MultiSteps(optax.adam(0.1, mu_dtype=jnp.float32), 2)
    params = {"w": jnp.zeros(3, jnp.bfloat16)}
    mine, whole = optimizer.init(params), alone.init(params)
    dtypes = jax.tree.map(lambda x: x.dtype, mine)
    for i in range(4):
        mean = (hvd.size() - 1) / 2 + i
        updates, mine = optimizer.update({"w": jnp.full(3, hvd.rank() + i, jnp.bfloat16)}, mine, params)
        expected, whole = alone.update({"w": jnp.full(3, mean, jnp.bfloat16)}, whole, params)
        np.testing.assert_allclose(np.asarray(updates["w"], float), np.asarray(expected["w"], float), rtol=0.02)
    assert jax.tree.map(lambda x: x.dtype, mine) == dtypes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": 77}, "op is 77"),
        ({"op": hvd.Adasum}, "no Adasum"),
        ({"compression": "fp16"}, "compression is 'fp16'"),
        ({"groups": 0}, "groups is 0"),
        ({"groups": [["w"]]}, "groups is"),
        ({"name": ""}, "name is ''"),
        ({"process_set": [0]}, "process_set is"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step is 0"),
    ],
)
def test_an_optimizer_checks_its_arguments_when_it_is_made(options, words):
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(optax.sgd(1.0), **options)


def test_a_rank_outside_of_the_process_set_keeps_its_gradients():
    """As with Horovod's optimizers for other frameworks."""
    first = hvd.add_process_set([0]) if hvd.size() > 1 else hvd.global_process_set
    mine = {"w": jnp.full(3, 1.0 + hvd.rank())}
    for function in (hvd.allreduce_gradients, jax.jit(hvd.allreduce_gradients, static_argnames="process_set")):
        np.testing.assert_array_equal(function(mine, process_set=first)["w"], mine["w"])
    hvd.remove_process_set(first)


def test_trees():
    tree = {"a": jnp.full(3, 1.0 + hvd.rank()), "b": [jnp.full((), hvd.rank(), jnp.bfloat16), jnp.arange(2.0)]}
    mean = (hvd.size() - 1) / 2
    for groups in (None, 1, 2):
        for function in (hvd.allreduce_gradients, jax.jit(hvd.allreduce_gradients, static_argnames="groups")):
            result = function(tree, groups=groups) if groups != 1 else function(tree["a"], groups=1)
            np.testing.assert_allclose(jax.tree.leaves(result)[0], 1 + mean)
    if hvd.size() > 1:
        other = {"a": jnp.ones(3), "b" if hvd.rank() == 0 else "c": jnp.ones(3)}
        for function in (hvd.allreduce_gradients, jax.jit(hvd.allreduce_gradients, static_argnames="groups")):
            with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has .*'b'.* where rank 1 has .*'c'"):
                function(other, groups=1)
        with pytest.raises(hpccoll.MismatchError, match=r"variable 0 is \['a'\] .*\[1\] on rank 0 and .*\[2\]"):
            hvd.broadcast_parameters({"a": jnp.ones(1 + hvd.rank())})
        with pytest.raises(hpccoll.MismatchError, match="root_rank is 0 on rank 0 and 9 on rank 1"):
            hvd.broadcast_parameters({"a": jnp.ones(1)}, root_rank=9 if hvd.rank() == 1 else 0)


def test_an_array_that_cannot_be_sent_is_named():
    """No array of the tree is sent, so the next call works."""
    for wrong, dtype in ((jax.random.key(hvd.rank()), "key<fry>"), (jnp.ones(2, jnp.float8_e5m2), "float8_e5m2")):
        with pytest.raises(hpccoll.UnsupportedError, match=rf"\['b'\]: dtype {dtype} is not supported"):
            hvd.broadcast_parameters({"a": jnp.ones(2), "b": wrong})
        with pytest.raises(hpccoll.UnsupportedError, match=rf"\['b'\]: dtype {dtype} is not supported"):
            hvd.allreduce_gradients({"a": jnp.ones(2), "b": wrong})
    sparse = BCOO((jnp.ones(1), jnp.zeros((1, 1), int)), shape=(3,))
    for wrong, words in ((jax.nn.relu, "does not make an array"), (2**70, "too large"), (sparse, "is sparse")):
        for function in (hvd.broadcast_parameters, hvd.allreduce_gradients):
            with pytest.raises(hpccoll.UnsupportedError, match=rf"\['b'\]: .*{words}"):
                function({"a": jnp.ones(2), "b": wrong})
    state = {"a": jnp.ones(2), "b": jax.random.key_data(jax.random.key(hvd.rank()))}
    assert equal_on_all_ranks(hvd.broadcast_parameters(state))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_memory_stays_as_it_is():
    """10,000 steps were tried, too: 0.2 MB more after the first 1,000, and none in the last 5,000."""
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.01))
    params = {"w": jnp.ones((50, 50)), "b": jnp.zeros(50)}

    @jax.jit
    def step(params, state, x):
        value, gradients = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"]) + p["b"]) ** 2))(params)
        updates, state = optimizer.update(gradients, state, params)
        shifted = hvd.sendrecv(value, (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size())
        return optax.apply_updates(params, updates), state, hvd.allgather(value) + shifted

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    state, pages = optimizer.init(params), []
    for i in range(3001):
        params, state, value = step(params, state, jnp.ones((8, 50)))
        if i % 10 == 0:
            jax.block_until_ready(value)
        if i % 1000 == 0:
            pages.append(resident())
    assert pages[-1] - pages[1] < 4_000_000, pages  # 2 KB a step would be seen
