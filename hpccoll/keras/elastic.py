# SPDX-License-Identifier: Apache-2.0
"""Elastic training with Keras, under Horovod's names: `hvd.elastic.run`, `KerasState`, callbacks that commit.

See docs/elastic.md for its guarantees, and hpccoll.elastic for the implementation.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from hpccoll import errors
from hpccoll.elastic import ElasticSampler, HostsUpdatedInterrupt, ObjectState, State
from hpccoll.elastic.loop import runner
from hpccoll.errors import RecoverableError as HorovodInternalError
from hpccoll.frontend.variables import all_built, with_committed
from hpccoll.horovod import init, shutdown
from hpccoll.keras.backends import backend
from hpccoll.keras.values import broadcast_variables, variables_of

__all__ = [
    "CommitStateCallback", "ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState",
    "ObjectState", "State", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run",
]  # fmt: skip

run = runner(init, shutdown)
"""Make a training function elastic, see hpccoll.elastic.run."""


class KerasState(ObjectState):
    """The state of a training: `KerasState(model, epoch=0, batch=0)`."""

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        path: str | Path = "",
        every: int = 1,
        sharded: Iterable[str] = (),
        **objects: Any,
    ) -> None:
        """
        :param model: built and compiled; its weights and the variables of its optimizer are committed in host memory
        :param optimizer: another optimizer than that of model.compile(), for a custom training loop. It is built here
            if it is not
        :param path: see hpccoll.elastic.State
        :param every: see hpccoll.elastic.State
        :param sharded: names of objects that differ between ranks; see hpccoll.elastic.ObjectState. Variables are equal
            on all ranks; two commits of them are kept, too
        :param objects: an ElasticSampler, or any other object that pickle takes
        :raises InvalidArgumentError: (a ValueError) the model has no variables yet
        """  # noqa: D205, D212
        if not all_built(model):
            raise errors.InvalidArgumentError("KerasState: the model is not built yet: call it, or model.build()")
        if optimizer is not None and not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.model, self.optimizer = model, optimizer
        self._values: list[np.ndarray[Any, Any]] = []
        self._older_values: list[np.ndarray[Any, Any]] = []
        super().__init__(path=path, every=every, sharded=sharded, **objects)
        self._keep()

    def _variables(self) -> list[Any]:
        known = (None, getattr(self.model, "optimizer", None))
        return [*variables_of(self.model), *([] if self.optimizer in known else self.optimizer.variables)]

    def _keep(self) -> None:
        self._values = [np.array(keras.ops.convert_to_numpy(variable)) for variable in self._variables()]

    def save(self) -> None:
        if self.sharded:
            self._older_values = self._values
        self._keep()
        super().save()

    def restore(self) -> None:
        for variable, value in with_committed("KerasState", self._variables(), self._values):
            variable.assign(value)
        super().restore()

    def rollback(self) -> None:
        self._values = self._older_values
        super().rollback()

    def sync(self) -> None:
        broadcast_variables(self._variables(), self.source)
        super().sync()

    def reset(self) -> None:
        """See State: compiled steps contain the number of ranks, so they are compiled again."""
        for name in ("train_function", "test_function", "predict_function"):
            setattr(self.model, name, None)
        backend().forget_programs()
        super().reset()

    def committed(self) -> Any:
        return super().committed(), self._values

    def take(self, commit: Any) -> None:
        objects, self._values = commit
        super().take(objects)
        self.restore()


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits a state after some steps and after each epoch; put it after callbacks that change the state.

    The last step of an epoch is committed with the epoch. If the ranks changed between the two, fit() would be called
    again for an epoch without a step, which it refuses.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        """
        :param state: a KerasState of this model
        :param batches_per_commit: steps between two commits
        """  # noqa: D205, D212
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self._made = 0
        """The steps of this epoch that the callback was told of: with steps_per_execution it is not told of each."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._made = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        before, self._made = self._made, batch + 1
        is_due = self._made // self.batches_per_commit > before // self.batches_per_commit
        if is_due and self._made != self.params.get("steps"):
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._commit()

    def _commit(self) -> None:
        if self.model is not None:  # with JAX, this gives its variables the values of the last step
            self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.batch` at the number of steps that were made in this epoch, those before a loss included."""

    def __init__(self, state: Any) -> None:
        """:param state: a State with the attribute `batch`; fit() gets `steps_per_epoch` less `state.batch`"""
        super().__init__()
        self.state, self._before = state, 0

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        self._before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self.state.batch = self._before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.state.batch = self._before = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.epoch` at the number of epochs that were made, those before a loss included."""

    def __init__(self, state: Any) -> None:
        """:param state: a State with the attribute `epoch`; fit() gets `epochs` less `state.epoch`"""
        super().__init__()
        self.state, self._before, self._first = state, 0, -1

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        self._before, self._first = self.state.epoch, -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self._first = epoch if self._first < 0 else self._first

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.state.epoch = self._before + epoch - self._first + 1
