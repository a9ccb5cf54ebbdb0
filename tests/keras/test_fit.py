# SPDX-License-Identifier: Apache-2.0
"""fit() on all ranks gives the weights that one process gets with the whole batch."""

import keras
import numpy as np
import pytest

import hpccoll
import hpccoll.keras as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("ignore:__array__ impl")]

BATCH = 48
EPOCHS = 3


def difference(values, data, share, network, optimizer, alone=None, batch_size=None, **options):
    """How far the weights and the optimizer's variables are from those of one process, and the model."""
    alone = alone or optimizer
    model = network(3 + hvd.rank())  # other weights on each rank, until the broadcast
    if options.get("groups") == "lists":
        options["groups"] = [model.layers[0].trainable_variables]
    model.compile(hvd.DistributedOptimizer(optimizer(), **options), "mse")
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    each = batch_size or BATCH // hvd.size()
    model.fit(*share(), batch_size=each, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[first])
    single = network(3)
    single.compile(alone(), "mse")
    single.fit(*data, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    pairs = zip(values(model.weights), values(single.weights), strict=True)
    return max(float(np.abs(mine - whole).max()) for mine, whole in pairs), model


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "norm": lambda: keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=0.05),
    "whole norm": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.1),
    "accumulation": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
    "all": lambda: keras.optimizers.Adam(
        0.01, clipvalue=0.1, gradient_accumulation_steps=2, loss_scale_factor=8.0, weight_decay=0.1, use_ema=True
    ),
}


@pytest.mark.parametrize("kind", ["adam", "all"])
def test_weights_are_those_of_one_process(kind, values, data, share, network, equal_on_all_ranks):
    error, model = difference(values, data, share, network, OPTIMIZERS[kind])
    assert equal_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert error < 2e-6, error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["momentum", "norm", "whole norm", "accumulation"])
def test_what_keras_does_with_gradients_sees_reduced_ones(kind, values, data, share, network, equal_on_all_ranks):
    error, model = difference(values, data, share, network, OPTIMIZERS[kind])
    assert equal_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert error < 2e-6, error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"groups": 2}, 2e-6),
        ({"groups": "lists"}, 2e-6),
        ({"gradient_predivide_factor": 2.0}, 2e-6),
        ({"name": "mine"}, 2e-6),
        ({"sparse_as_dense": True}, 2e-6),
        ({"compression": hvd.Compression.fp16}, 2e-2),
        ({"compression": hvd.Compression.bf16}, 5e-2),
    ],
)
def test_options(options, bound, values, data, share, network, equal_on_all_ranks):
    error, model = difference(values, data, share, network, OPTIMIZERS["momentum"], **options)
    assert equal_on_all_ranks([*model.weights, *model.optimizer.variables])
    assert error < bound, error


@pytest.mark.slow
def test_a_sum_of_gradients(values, data, share, network):
    size = hvd.size()
    error, _ = difference(
        values, data, share, network, lambda: keras.optimizers.SGD(0.05 / size), lambda: keras.optimizers.SGD(0.05),
        op=hvd.Sum,
    )  # fmt: skip
    assert error < 2e-6, error


@pytest.mark.slow
@pytest.mark.parametrize("average", [True, False])
def test_backward_passes_per_step(average, values, data, share, network):
    rate = 0.02
    error, _ = difference(
        values, data, share, network, lambda: keras.optimizers.SGD(rate),
        lambda: keras.optimizers.SGD(rate if average else 2 * rate, gradient_accumulation_steps=2),
        backward_passes_per_step=2, average_aggregated_gradients=average,
    )  # fmt: skip
    assert error < 2e-6, error


def with_an_embedding(seed):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Embedding(10, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((3,), dtype="int32"), *layers])


@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"backward_passes_per_step": 2}], ids=str)
def test_gradients_of_rows(options, values, data, share):
    """With TensorFlow those of an Embedding are tf.IndexedSlices."""

    def rows(x, y):
        return np.abs(10 * x[:, :3]).astype("int32") % 10, y

    accumulated = {"gradient_accumulation_steps": 2} if "backward_passes_per_step" in options else {}
    rate = 0.05
    error, _ = difference(
        values, rows(*data), lambda: rows(*share()), with_an_embedding, lambda: keras.optimizers.SGD(rate),
        lambda: keras.optimizers.SGD(rate * (2 if accumulated else 1), **accumulated), **options,
    )  # fmt: skip
    assert error < 2e-6, error


def test_added_up_gradients_are_reduced_once(share, network):
    model = network(3)
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    x, y = share()
    model.fit(x, y, batch_size=len(x) // 4, shuffle=False, verbose=0)  # compiles: 4 steps
    before = hpccoll.world().stats()["requests"]
    model.fit(x, y, batch_size=len(x) // 4, shuffle=False, verbose=0)
    reduced = hpccoll.world().stats()["requests"] - before
    assert reduced == (2 * len(model.trainable_variables) if hvd.size() > 1 else 0)


@pytest.mark.slow
def test_the_last_batch_may_be_smaller_on_some_ranks(network, equal_on_all_ranks, data):
    rows = 40 if hvd.rank() == 0 else 38
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data[0][:rows], data[1][:rows], batch_size=16, epochs=2, verbose=0, callbacks=[first])
    assert equal_on_all_ranks([*model.weights, *model.optimizer.variables])


@pytest.mark.slow
def test_a_network_learns_digits(equal_on_all_ranks):
    """Convolutions, normalization, dropout, a validation set: 8 x 8 images of handwritten digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1440], order[1440:]
    mine = train[hvd.rank() :: hvd.size()][: 1440 // hvd.size()]
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)), keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.BatchNormalization(), keras.layers.MaxPooling2D(), keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(10),
        ]
    )  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.003)), loss, metrics=["accuracy"])
    model.fit(
        images[mine], labels[mine], batch_size=64 // hvd.size(), epochs=10, verbose=0,
        validation_data=(images[test], labels[test]),
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    )  # fmt: skip
    assert equal_on_all_ranks(model.trainable_variables)
    accuracy = model.evaluate(images[test], labels[test], verbose=0)[1]
    assert accuracy > 0.93, accuracy


@pytest.mark.parametrize(("passes", "average"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("outside", [False, True])
def test_local_variables_keep_their_gradients(network, passes, average, outside):
    """The sum of some passes is scaled on its rank as it would be by the others; also outside of the process set."""
    model = network(3)
    first = hvd.add_process_set([0]) if outside and hvd.size() > 1 else hvd.global_process_set
    model.compile(
        hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(1.0), local_layers=model.layers[-1:], backward_passes_per_step=passes,
            average_aggregated_gradients=average, process_set=first,
        ), "mse",
    )  # fmt: skip
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    before = [np.array(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]
    ones = [keras.ops.ones(v.shape) * (1.0 + hvd.rank()) for v in model.trainable_variables]
    for _ in range(passes):
        optimizer.apply(ones)
    mean, own = 1 + (hvd.size() - 1) / 2, (1.0 + hvd.rank()) / hvd.size()
    if first is not hvd.global_process_set:
        mean = own = 1.0 + hvd.rank()
        hvd.remove_process_set(first)
    if not average:
        mean, own = mean * passes, own * passes
    for at, variable in enumerate(model.trainable_variables):
        moved = before[at] - keras.ops.convert_to_numpy(variable)
        np.testing.assert_allclose(moved, mean if at < 2 else own, rtol=1e-5)
