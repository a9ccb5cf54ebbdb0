# SPDX-License-Identifier: Apache-2.0
"""What becomes of the optimizer that is given: loss scales, files, errors."""

import json
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import hpccoll
import hpccoll.keras as hvd

sys.path.insert(0, str(Path(__file__).parents[1]))
import horovod_names

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("ignore:__array__ impl")]


def test_all_names_of_horovods_are_there_or_say_what_to_use():
    assert horovod_names.missing(hvd, "keras") == []
    assert horovod_names.missing(hvd.elastic, "keras.elastic") == []


@pytest.fixture
def mixed():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def test_all_ranks_find_the_same_infinity(network, mixed):
    """One of them has it; with the policy set, compile() puts nothing around the optimizer."""
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")
    optimizer = model.optimizer
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    optimizer.build(model.trainable_variables)
    before = [np.array(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]
    scale = float(optimizer.dynamic_scale)
    bad = [np.full(v.shape, np.inf if hvd.rank() == 0 else 1.0, "float32") for v in model.trainable_variables]
    step(optimizer, bad, model.trainable_variables)
    assert float(optimizer.dynamic_scale) == scale / 2
    for old, variable in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, keras.ops.convert_to_numpy(variable))
    good = [np.full(v.shape, scale / 2 * (1 + hvd.rank()), "float32") for v in model.trainable_variables]
    step(optimizer, good, model.trainable_variables)
    moved = before[0] - keras.ops.convert_to_numpy(model.trainable_variables[0])
    np.testing.assert_allclose(moved, 0.5 * (1 + (hvd.size() - 1) / 2), rtol=1e-5)


def step(optimizer, gradients, variables):
    gradients = [keras.ops.convert_to_tensor(g) for g in gradients]
    if keras.backend.backend() != "jax":
        optimizer.apply(gradients, variables)
        return
    own = [v.value for v in optimizer.variables]
    new, state = optimizer.stateless_apply(own, gradients, [v.value for v in variables])
    for variable, value in zip([*variables, *optimizer.variables], [*new, *state], strict=True):
        variable.assign(value)


@pytest.mark.slow
def test_fit_with_16_bits(network, mixed, share, equal_on_all_ranks):
    model = network(3 + hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    history = model.fit(*share(), batch_size=24, epochs=6, verbose=0, callbacks=[first]).history["loss"]
    assert equal_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert history[-1] < history[0]


def test_a_scale_around_it_is_refused(network):
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match="wrap it from outside, DistributedOptimizer"):
        keras.optimizers.LossScaleOptimizer(optimizer)


def test_other_groups_are_one_error_for_all():
    """Each has three variables of one shape: without an error the gradients of other variables would be added."""
    a, b, c = (keras.Variable(np.ones(2, "float32"), name=name) for name in "abc")
    groups = [[a, b], [c]] if hvd.rank() == 0 else [[a, c], [b]]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=groups)
    optimizer.build([a, b, c])
    if hvd.size() == 1:
        return
    with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has .* b' where rank 1 has .* c'"):
        optimizer.apply([keras.ops.ones(2)] * 3, [a, b, c])


def test_errors():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD())
    assert isinstance(optimizer, keras.optimizers.SGD)
    with pytest.raises(ValueError, match="is a DistributedOptimizer already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match=r"builtins\.str: give a keras"):
        hvd.DistributedOptimizer("adam")
    with pytest.raises(ValueError, match="not supported with op != Average"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match=r"gradient_predivide_factor is 0\.0: a positive number"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), gradient_predivide_factor=0.0)
    with pytest.raises(ValueError, match="set gradient_accumulation_steps where you make the optimizer"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(gradient_accumulation_steps=2), backward_passes_per_step=2)
    with pytest.raises(ValueError, match=r"groups should be a positive integer or a list of list of keras\.Variable"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=0)
    variable = keras.Variable(np.ones(2, "float32"))
    with pytest.raises(ValueError, match=r"groups\[0\]\[0\], .*, is none of the variables"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=[[variable]]).build([keras.Variable(np.ones(2))])
    optimizer.build([variable])
    with pytest.raises(ValueError, match="2 gradients for 1 variables"):
        optimizer.apply([keras.ops.ones(2)] * 2, [variable])
    with pytest.raises(ValueError, match="initial_lr is 'fast': a number"):
        hvd.callbacks.LearningRateWarmupCallback("fast")
    if keras.backend.backend() == "jax":
        with pytest.raises(ValueError, match="no Adasum"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum)
    with pytest.raises(ValueError, match="compression is 16"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), compression=16)
    with pytest.raises(RuntimeError, match=r"call broadcast_model\(model, 0\)"):
        hvd.broadcast_global_variables(0)


if keras.backend.backend() == "tensorflow":

    @pytest.mark.parametrize("options", [{"gradient_predivide_factor": 49.0}, {"groups": 1}, {"sparse_as_dense": True}])
    def test_a_gradient_of_an_embedding(options):
        """It is sparse; 1 / 49 * 49 is not 1 in floating-point numbers, and sparse gradients have no factors."""
        embedding, dense = (keras.Variable(np.zeros((3, 2), "float32"), name=name) for name in ("embedding", "dense"))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
        optimizer.apply(gradients_of(embedding, dense), [embedding, dense])
        mean = (1 + hvd.size()) / 2
        np.testing.assert_allclose(embedding.numpy(), [[-mean, -mean], [0, 0], [-mean, -mean]], rtol=1e-6)
        np.testing.assert_allclose(dense.numpy(), np.full((3, 2), -mean), rtol=1e-6)

    @pytest.mark.parametrize("sparse_as_dense", [False, True])
    def test_a_gradient_of_an_embedding_stays_on_its_rank(sparse_as_dense):
        """It is divided by the number of ranks, as Horovod's scale_local_gradients says."""
        embedding, dense = (keras.Variable(np.zeros((3, 2), "float32"), name=name) for name in ("embedding", "dense"))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sparse_as_dense=sparse_as_dense)
        optimizer.register_local_var(embedding)
        optimizer.apply(gradients_of(embedding, dense), [embedding, dense])
        mine = (1 + hvd.rank()) / hvd.size()
        np.testing.assert_allclose(embedding.numpy(), [[-mine, -mine], [0, 0], [-mine, -mine]], rtol=1e-6)

    def test_variables_of_tensorflow_stay_on_their_rank():
        import tensorflow as tf

        own, shared = tf.Variable([0.0]), tf.Variable([0.0])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), groups=[[shared]])
        optimizer.register_local_var(own)
        optimizer.apply_gradients([(tf.constant([1.0 + hvd.rank()]), one) for one in (own, shared)])
        np.testing.assert_allclose([own[0], shared[0]], [-(1 + hvd.rank()) / hvd.size(), -(1 + hvd.size()) / 2])

    def gradients_of(embedding, dense):
        import tensorflow as tf

        value = 1.0 + hvd.rank()
        slices = tf.IndexedSlices(tf.fill((2, 2), value), tf.constant([0, 2]), tf.constant([3, 2]))
        return [slices, tf.fill(dense.shape, value)]


if keras.backend.backend() == "jax":

    def test_two_optimizers_in_one_program_keep_their_gradients():
        """Two critics, say, with variables of one name; rank 0 has the first gradient later, the others the second."""
        import jax
        import jax.numpy as jnp

        made = [hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)) for _ in range(2)]
        variables = [keras.Variable(np.zeros(3, "float32"), name="kernel") for _ in made]
        for optimizer, variable in zip(made, variables, strict=True):
            optimizer.build([variable])

        def late(x, here):
            work = jax.lax.fori_loop(0, 60 if here else 0, lambda _, a: jnp.tanh(a @ a), jnp.eye(120) * x[0])
            return x + 0 * work[0, 0]

        @jax.jit
        def step(x):
            gradients = late(x, hvd.rank() == 0), late(5 * x, hvd.rank() != 0)
            return [
                optimizer.stateless_apply([v.value for v in optimizer.variables], [gradient], [variable.value])[0][0]
                for optimizer, gradient, variable in zip(made, gradients, variables, strict=True)
            ]

        for _ in range(3):
            first, second = step(jnp.ones(3))
            np.testing.assert_array_equal(first, -1)
            np.testing.assert_array_equal(second, -5)

    # the only backend that has keras.distribution
    def test_the_distribution_of_keras_is_refused():
        devices = keras.distribution.list_devices()[:1]
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
        try:
            with pytest.raises(ValueError, match=r"Drop keras\.distribution"):
                hvd.DistributedOptimizer(keras.optimizers.SGD())
        finally:
            keras.distribution.set_distribution(None)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_configuration_makes_another_distributed_optimizer(network, share, passes):
    """As in Horovod, whose programs copy optimizers so."""
    first = hvd.DistributedOptimizer(keras.optimizers.Adam(0.25), name="copied", backward_passes_per_step=passes)
    again = (type(first) if passes == 1 else first).from_config(first.get_config())
    assert again is not first
    assert again.get_config() == first.get_config()
    assert float(again.learning_rate) == 0.25
    assert again.exchanges() == (hvd.size() > 1)
    before = hpccoll.world().stats()["requests"]
    model = network(3 + hvd.rank())
    hvd.broadcast_model(model)
    model.compile(again, "mse")
    model.fit(*share(), batch_size=24, verbose=0)
    assert hvd.size() == 1 or hpccoll.world().stats()["requests"] > before
    weights = [keras.ops.convert_to_numpy(w).tobytes() for w in model.weights]
    assert len({tuple(each) for each in hvd.allgather_object(weights)}) == 1
    assert type(again).from_config(again.get_config()).exchanges() == again.exchanges()


def test_a_state_builds_an_optimizer_of_its_own(network):
    model, optimizer = network(3), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    state = hvd.elastic.KerasState(model, optimizer, step=0)
    assert optimizer.built
    state.sync()
    with pytest.raises(ValueError, match="the model is not built yet"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


def test_files_know_nothing_of_us(network, share, tmp_path, values):
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    model.fit(*share(), batch_size=24, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    with zipfile.ZipFile(path) as file:
        assert "hpccoll" not in file.read("config.json").decode()
        assert json.loads(file.read("config.json"))["compile_config"]["optimizer"]["class_name"] == "Adam"
    plain, ours = keras.saving.load_model(path), hvd.load_model(path)
    with pytest.raises(ValueError, match="is a DistributedOptimizer already"):
        hvd.DistributedOptimizer(ours.optimizer)
    hvd.DistributedOptimizer(plain.optimizer)
    for loaded in (plain, ours):
        state = zip(values(loaded.optimizer.variables), values(model.optimizer.variables), strict=True)
        assert all(np.array_equal(a, b) for a, b in state)
    x, y = share()
    for one in (model, ours):
        one.fit(x, y, batch_size=24, shuffle=False, verbose=0)
    for a, b in zip(values(ours.weights), values(model.weights), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_one_rank_alone_loads_the_model(network, share, tmp_path, values, equal_on_all_ranks):
    """Horovod's examples go on from a checkpoint so. Keras gives the variables of a loaded model other paths."""
    model = network(3 + hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)), keras.losses.MeanSquaredError())
    expected = None
    if hvd.rank() == 0:
        before = network(7)
        before.compile(keras.optimizers.SGD(0.01, momentum=0.9), keras.losses.MeanSquaredError())
        before.fit(*share(), batch_size=24, verbose=0)
        before.save(tmp_path / "model.keras")
        model = hvd.load_model(tmp_path / "model.keras")
        assert [w.path for w in model.weights] != [w.path for w in before.weights]
        expected = values([*before.weights, *before.optimizer.variables])
    hvd.broadcast_model(model)
    for value, saved in zip(
        values([*model.weights, *model.optimizer.variables]), hpccoll.broadcast_object(expected), strict=True
    ):
        np.testing.assert_array_equal(value, saved)
    model.fit(*share(), batch_size=24, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert equal_on_all_ranks([*model.weights, *model.optimizer.variables])


def test_an_error_of_a_step_is_what_fit_raises(network, share):
    def loss(y, prediction):
        raise ValueError("of this loss")

    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, use_ema=True)), loss)
    with pytest.raises(ValueError, match="of this loss"):
        model.fit(*share(), batch_size=24, verbose=0)


def test_fit_passes_where_an_earlier_error_is_handled(network, share):
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    try:
        raise RuntimeError("UNAVAILABLE: hpccoll.PeerLostError: rank 9 was lost")  # in the words of JAX
    except RuntimeError:
        model.fit(*share(), batch_size=24, verbose=0)


def test_values(values):
    rank, size = hvd.rank(), hvd.size()
    mean = (size - 1) / 2
    assert float(hvd.allreduce(rank)) == mean
    assert float(hvd.allreduce(float(rank), name="a number", op=hvd.Sum)) == mean * size
    tensor = keras.ops.ones((size, 2)) * rank
    for name in (None, "named"):
        result = hvd.allreduce(tensor, name=name)
        assert keras.ops.is_tensor(result)
        np.testing.assert_allclose(values([result, tensor]), [np.full((size, 2), mean), np.full((size, 2), rank)])
    np.testing.assert_array_equal(values([hvd.allgather(tensor[:1])])[0][:, 0], range(size))
    np.testing.assert_array_equal(hvd.allgather([rank]), range(size))
    np.testing.assert_array_equal(values([hvd.broadcast(tensor, size - 1)])[0], size - 1)
    assert hvd.broadcast(rank, size - 1) == size - 1
    np.testing.assert_allclose(values([hvd.reducescatter(tensor)])[0], [[mean, mean]])


@pytest.mark.mpi(min_size=2)
def test_different_models_are_an_error_on_all_ranks(network):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2 + (hvd.rank() == 1))])
    with pytest.raises(hpccoll.MismatchError, match=r"variable \d+ is .*\[4, 2\] on rank 0 and .*\[4, 3\] on rank 1"):
        hvd.broadcast_model(model)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(hpccoll.MismatchError, match="root_rank is 0 on rank 0 and 9 on rank 1"):
        hvd.broadcast_model(model, 9 if hvd.rank() == 1 else 0)
