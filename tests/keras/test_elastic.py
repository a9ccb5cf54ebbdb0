# SPDX-License-Identifier: Apache-2.0
"""KerasState under every sequence of its calls, as tests/elastic/test_states.py has it for the other classes."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import hpccoll.keras as hvd
from hpccoll.keras import elastic

sys.path.append(str(Path(__file__).parents[1] / "elastic"))
import sequences

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("job"), pytest.mark.filterwarnings("ignore:__array__ impl")]


@pytest.mark.slow
def test_every_sequence_of_calls(values: Any) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.BatchNormalization()])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    other = keras.optimizers.Adam(0.1)
    other.build(model.trainable_variables)
    state = elastic.KerasState(model, other, step=0)
    variables = [*model.weights, *model.optimizer.variables, *other.variables]

    def write(number: int) -> None:
        for variable in variables:
            variable.assign(np.full(variable.shape, number))
        state.step = number

    def read() -> dict[str, Any]:
        return {"variables": np.concatenate([value.ravel() for value in values(variables)]), "step": state.step}

    sequences.check(state, hvd.rank(), hvd.size(), write, read)


def test_a_state_with_sharded_values_goes_back_to_the_commit_before(values: Any) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    state = elastic.KerasState(model, mine=0, sharded=["mine"])
    for number in (1, 2):
        for variable in model.weights:
            variable.assign(np.full(variable.shape, number))
        state.mine = number
        state.save()
    state.rollback()
    state.restore()
    assert state.mine == 1
    assert all((value == 1).all() for value in values(model.weights))


def test_a_commit_without_the_optimizer_is_not_restored_over_it() -> None:
    """What a step has done to an optimizer of a later compile() could not be undone."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    state = elastic.KerasState(model, step=0)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    with pytest.raises(ValueError, match=r"the commit has 2 variables, .* 6 now: call model.compile\(\) before"):
        state.restore()
    state.save()
    state.restore()


def test_a_commit_is_not_left_out_where_fit_makes_several_steps_at_once() -> None:
    """With steps_per_execution=4, Keras tells callbacks of every fourth step: 5 steps have passed at 8, 12, 16, ..."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    state, committed = elastic.KerasState(model, batch=0), []
    commits = elastic.CommitStateCallback(state, batches_per_commit=5)
    commits.set_model(model)
    commits.set_params({"steps": 24})
    commits._commit = lambda: committed.append(commits._made)  # type: ignore[method-assign]
    for epoch in range(2):
        commits.on_epoch_begin(epoch)
        for last in range(3, 24, 4):
            commits.on_train_batch_end(last)
    assert committed == 2 * [8, 12, 16, 20]
