# SPDX-License-Identifier: Apache-2.0
"""Horovod's callbacks in fit()."""

import keras
import numpy as np
import pytest

import hpccoll
import hpccoll.keras as hvd

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("ignore:__array__ impl")]


class Recorder(keras.callbacks.Callback):
    """What is there before the first step, the learning rate of each step, and the metrics of each epoch."""

    def __init__(self):
        super().__init__()
        self.rates, self.logs, self.first = [], [], None

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))
        if self.first is None:
            variables = [*self.model.weights, *self.model.optimizer.variables]
            self.first = [np.array(keras.ops.convert_to_numpy(v)) for v in variables]

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append(dict(logs))


def test_the_broadcast_comes_before_the_first_step(network, share, values):
    model = network(3 + hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * (1 + hvd.rank()))), "mse")
    recorder = Recorder()
    model.fit(
        *share(), batch_size=24, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), recorder]
    )
    said = hpccoll.allgather_object([value.tobytes() for value in recorder.first])
    assert all(one == said[0] for one in said)
    assert recorder.rates[0] == pytest.approx(0.01)
    for value, other in zip(recorder.first[:4], values(network(3).weights), strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("given", ["several", "one", "registered", "inside"])
def test_local_variables_are_left_out(network, share, given):
    model = network(3 + hvd.rank())
    variable = model.weights[-2]
    own = np.array(keras.ops.convert_to_numpy(variable))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    recorder = Recorder()
    inside = variable.value if given == "inside" and keras.backend.backend() == "tensorflow" else variable
    local = {"several": model.weights[-2:], "one": variable, "inside": [inside]}
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local.get(given))
    if given == "registered":
        first.register_local_var(variable)
    model.fit(*share(), batch_size=24, verbose=0, callbacks=[first, recorder])
    np.testing.assert_array_equal(recorder.first[2], own)


def test_what_is_no_variable_is_no_local_variable():
    for wrong in ([7], 7, ["dense/kernel"]):
        with pytest.raises((ValueError, TypeError)):
            hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=wrong)


def test_metrics_are_averaged_for_the_callbacks_that_follow(network, share):
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", metrics=["mae"])
    before, after = Recorder(), Recorder()
    x, y = share()
    history = model.fit(
        x, y * (1 + hvd.rank()), batch_size=24, verbose=0, validation_data=(x, y),
        callbacks=[before, hvd.callbacks.MetricAverageCallback(), after],
    ).history  # fmt: skip
    said = hpccoll.allgather_object(before.logs[0])
    assert set(after.logs[0]) == {"loss", "mae", "val_loss", "val_mae"}
    for name, value in after.logs[0].items():
        assert value == pytest.approx(np.mean([float(one[name]) for one in said]))
        assert history[name] == [value]


@pytest.mark.mpi(min_size=2)
def test_metrics_of_some_ranks_only_are_an_error_on_all_ranks():
    mine = {"loss": 1.0} if hvd.rank() != 1 else {"loss": 1.0, "val_loss": 2.0}
    says = r"rank 0 has metrics \['loss'\], rank 1 has \['loss', 'val_loss'\]"
    with pytest.raises(hpccoll.MismatchError, match=says):
        hvd.callbacks.MetricAverageCallback().on_epoch_end(0, mine)


def test_a_schedule_changes_the_rate_between_epochs(network, share):
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    recorder = Recorder()
    schedule = [
        hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5**epoch, end_epoch=2),
        hvd.callbacks.LearningRateScheduleCallback(0.1, 0.01, start_epoch=2),
    ]
    x, y = share()
    history = model.fit(x, y, batch_size=len(x) // 2, epochs=4, verbose=0, callbacks=[*schedule, recorder]).history
    np.testing.assert_allclose(recorder.rates, np.repeat([0.1, 0.05, 0.001, 0.001], 2), rtol=1e-6)
    np.testing.assert_allclose(history["lr"], [0.1, 0.05, 0.001, 0.001], rtol=1e-6)


def test_the_rate_warms_up(network, share, capfd):
    size = hvd.size()
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.08)), "mse")
    recorder = Recorder()
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.08, warmup_epochs=2, verbose=1)
    x, y = share()
    model.fit(x, y, batch_size=len(x) // 4, epochs=3, verbose=0, callbacks=[warmup, recorder])
    expected = [0.08 / size * ((at + 1) / 4 * (size - 1) / 2 + 1) for at in range(8)] + [0.08] * 4
    np.testing.assert_allclose(recorder.rates, expected, rtol=1e-5)
    printed = "Epoch 2: finished gradual learning rate warmup to 0.08." in capfd.readouterr().out
    assert printed == (hvd.rank() == 0)


def test_momentum_is_corrected(network):
    """What SGD has collected counts as if it had been collected with the new rate: m * new / old, once."""
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5)), "mse")
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    for velocity in optimizer.momentums:
        velocity.assign(keras.ops.ones(velocity.shape))
    callback = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 3.0 if epoch else 1.0)
    callback.set_model(model)
    callback.set_params({})
    callback.on_train_begin()
    for epoch, expected in ((0, 1.0), (1, 3.0), (2, 3.0)):
        callback.on_epoch_begin(epoch)
        callback.on_train_batch_begin(0)
        np.testing.assert_allclose(keras.ops.convert_to_numpy(optimizer.momentums[0]), expected, rtol=1e-6)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(schedule)), "mse")
    with pytest.raises(ValueError, match="give the optimizer a number"):
        callback.on_train_begin()


def test_the_best_model_is_saved_once(network, share, tmp_path):
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, y = share()
    best = hvd.callbacks.BestModelCheckpoint(filepath=tmp_path / "best.keras")
    model.fit(
        x, y, batch_size=24, verbose=0, validation_data=(x, y), callbacks=[hvd.callbacks.MetricAverageCallback(), best]
    )
    assert (tmp_path / "best.keras").exists() == (hvd.rank() == 0)


def test_after_each_commit_the_epoch_has_a_step_left(network, share):
    """fit() may be called again after each commit, for the rest of its epoch; it refuses an epoch without a step."""
    model = network(3)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    at = []
    state.commit = lambda: at.append((state.epoch, state.batch))
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state),
    ]
    model.fit(*share(), batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    steps = -(-len(share()[0]) // 8)
    assert at == [*((0, step) for step in range(1, steps)), (1, 0), *((1, step) for step in range(1, steps)), (2, 0)]
