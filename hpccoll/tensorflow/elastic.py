# SPDX-License-Identifier: Apache-2.0
"""Elastic training with TensorFlow, under Horovod's names: `run`, `TensorFlowState`, `TensorFlowKerasState`.

See docs/elastic.md for its guarantees, and hpccoll.elastic for the implementation.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from hpccoll import errors
from hpccoll.default_world import current
from hpccoll.elastic import ElasticSampler, HostsUpdatedInterrupt, ObjectState, State
from hpccoll.elastic.loop import runner
from hpccoll.errors import RecoverableError as HorovodInternalError
from hpccoll.frontend.process_sets import global_process_set
from hpccoll.frontend.variables import all_built, with_committed
from hpccoll.horovod import init, shutdown
from hpccoll.tensorflow.functions import check_variables

__all__ = [
    "ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TensorFlowKerasState",
    "TensorFlowState", "run",
]  # fmt: skip

run = runner(init, shutdown)
"""Make a training function elastic, see hpccoll.elastic.run."""


class TensorFlowState(ObjectState):
    """Variables and objects: `TensorFlowState(variables=[w, b], epoch=0, batch=0)`."""

    def __init__(
        self,
        variables: Sequence[Any] | None = None,
        session: Any = None,
        *,
        path: str | Path = "",
        every: int = 1,
        sharded: Iterable[str] = (),
        **objects: Any,
    ) -> None:
        """
        :param variables: tf.Variables, committed in host memory; default: those of tf.compat.v1.global_variables()
        :param session: the session of their graph; default: the current one, in a graph
        :param path: see hpccoll.elastic.State
        :param every: see hpccoll.elastic.State
        :param sharded: names of objects that differ between ranks; see hpccoll.elastic.ObjectState. Variables are equal
            on all ranks; two commits of them are kept, too
        :param objects: an ElasticSampler, or any other object that pickle takes
        :raises InvalidArgumentError: (a ValueError) there are no variables, or no session in a graph
        """  # noqa: D205, D212
        self.session = session or tf.compat.v1.get_default_session()
        given = variables if variables is not None else tf.compat.v1.global_variables()
        self._own, self._loads = list(given), _Loads()
        if not self._variables():
            raise errors.InvalidArgumentError("TensorFlowState: there are no variables: give variables=")
        if self.session is None and not tf.executing_eagerly():
            raise errors.InvalidArgumentError("TensorFlowState: give the session that has the variables")
        self._values: list[np.ndarray[Any, Any]] = []
        self._older_values: list[np.ndarray[Any, Any]] = []
        super().__init__(path=path, every=every, sharded=sharded, **objects)
        self._keep()

    @property
    def variables(self) -> list[Any]:
        """The variables."""
        return self._variables()

    def _variables(self) -> list[Any]:
        return self._own

    def _read(self) -> list[np.ndarray[Any, Any]]:
        if self.session is None:
            return [np.array(variable.numpy()) for variable in self._variables()]
        return [np.array(value) for value in self.session.run(self._variables())]

    def _write(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        if self.session is None:
            for variable, value in with_committed(type(self).__name__, self._variables(), values):
                variable.assign(value)
        else:
            self._loads.run(self.session, self._variables(), values)

    def _keep(self) -> None:
        self._values = self._read()

    def save(self) -> None:
        if self.sharded:
            self._older_values = self._values
        self._keep()
        super().save()

    def restore(self) -> None:
        self._write(self._values)
        super().restore()

    def rollback(self) -> None:
        self._values = self._older_values
        super().rollback()

    def sync(self) -> None:
        values = self._read()
        check_variables(values, self._variables(), "TensorFlowState", global_process_set, self.source)
        handles = [
            current().broadcast_async(value, self.source, name=f"hpccoll.tensorflow.elastic.{at}")
            for at, value in enumerate(values)
        ]
        self._write([np.asarray(handle.wait()) for handle in handles])
        super().sync()

    def committed(self) -> Any:
        return super().committed(), self._values

    def take(self, commit: Any) -> None:
        objects, self._values = commit
        super().take(objects)
        self.restore()


class _Loads:
    """The operations of a graph that assign values to variables; each is made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}

    def run(self, session: Any, variables: Sequence[Any], values: Sequence[Any]) -> None:
        with session.graph.as_default():
            for variable in variables:
                if id(variable) not in self._made:
                    value = tf.compat.v1.placeholder(variable.dtype.base_dtype, variable.shape)
                    self._made[id(variable)] = value, variable.assign(value)
        made = [self._made[id(variable)] for variable in variables]
        fed = {value: given for (value, _), given in zip(made, values, strict=True)}
        session.run([assign for _, assign in made], fed)


class TensorFlowKerasState(TensorFlowState):
    """A Keras model, trained in a loop of your own, and objects: `TensorFlowKerasState(model, optimizer, epoch=0)`.

    For training with fit(), hpccoll.tensorflow.keras.elastic has KerasState and callbacks that commit.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        backend: Any = None,
        *,
        path: str | Path = "",
        every: int = 1,
        sharded: Iterable[str] = (),
        **objects: Any,
    ) -> None:
        """
        :param model: built, with all its layers; its weights are committed in host memory. States of random numbers
            stay each rank's own
        :param optimizer: the model's; default: that of compile(). It is built if it is not built yet
        :param backend: has no effect; Horovod has this parameter
        :param path: see hpccoll.elastic.State
        :param every: see hpccoll.elastic.State
        :param sharded: see TensorFlowState
        :param objects: see TensorFlowState
        :raises InvalidArgumentError: (a ValueError) the model is not built
        """  # noqa: D205, D212
        del backend
        if hasattr(model, "_flatten_layers") and not all_built(model):
            raise errors.InvalidArgumentError(
                "TensorFlowKerasState: the model is not built yet: call it, or model.build(shape)"
            )
        self.model, self._given = model, optimizer
        super().__init__([], path=path, every=every, sharded=sharded, **objects)

    @property
    def optimizer(self) -> Any:
        """The optimizer; None: compile() has not been called."""
        return self._given or getattr(self.model, "optimizer", None)

    def _variables(self) -> list[Any]:
        optimizer, others = self.optimizer, []
        if optimizer is not None:
            if not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            others = list(optimizer.variables)
        # the `variables` of Keras 3 have states of random numbers, too, which differ between ranks, as Dropout must
        return [*getattr(self.model, "weights", self.model.variables), *others]

    def reset(self) -> None:
        """See State: compiled steps contain the number of ranks, so they are compiled again."""
        for name in ("train_function", "test_function", "predict_function"):
            setattr(self.model, name, None)
        super().reset()
