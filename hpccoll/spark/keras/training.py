# SPDX-License-Identifier: Apache-2.0
"""The training of a model of Keras on a rank, over its batches; without Spark."""

import itertools
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

import hpccoll.keras as hvd
from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.job import Feed, Job, Source, inputs_of, labels_of
from hpccoll.spark.estimators.rows import Arrays, Batch

__all__ = ["inputs", "listed", "train", "unpickled"]


def train(source: Source, job: Job) -> Any:
    """Train the model; all ranks call this.

    :returns: on rank 0 the history, the weights, and how many numbers each output has per row; None on others
    """
    hvd.init()
    keras.utils.set_random_seed((job.seed + hvd.rank()) % (1 << 32))
    model = unpickled(job["model"], job["custom_objects"])
    feed = Feed(job, source)
    history = _fit(model, feed, job)
    result = (history, model.get_weights(), _widths(model, job)) if hvd.rank() == 0 else None
    hvd.shutdown()
    return result


def unpickled(model: bytes, objects: dict[str, Any] | None) -> Any:
    """Unpickle a model, with the custom objects that it needs."""
    with keras.saving.custom_object_scope(objects or {}):
        return pickle.loads(model)


def listed(value: Any) -> list[Any]:
    """Return inputs or outputs of a model as a list."""
    return list(value) if isinstance(value, tuple | list) else [value]


def inputs(model: Any, columns: Arrays, features: Sequence[str]) -> list[NDArray[Any]]:
    """Make the inputs of a model of the columns of features."""
    known = getattr(model, "inputs", None) or []
    parts = inputs_of(columns, features, len(known) or 1, None, lambda values, _name: values)
    if not known:
        return [_narrow(part) for part in parts]
    return [
        _shaped(part, one.shape).astype(keras.backend.standardize_dtype(one.dtype))
        for part, one in zip(parts, known, strict=True)
    ]


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(keras.config.floatx()) if values.dtype.kind == "f" else values


def _shaped(values: NDArray[Any], shape: Sequence[Any]) -> NDArray[Any]:
    """Give values the shape of a tensor of the model, if both have as many numbers."""
    inner = tuple(shape[1:])
    if None in inner or int(np.prod(inner)) * len(values) != values.size:
        return values
    return values.reshape(len(values), *inner)


class _Rows:
    """The batches as Keras takes them."""

    def __init__(self, model: Any, feed: Feed, job: Job) -> None:
        self._model, self._feed, self._job = model, feed, job
        self._outputs = getattr(model, "outputs", None) or []

    def training(self, first: int) -> Iterator[Any]:
        """Yield the batches of all epochs from this one."""
        for epoch in itertools.count(first):
            yield from (self._made(batch, factor=not self._feed.even) for batch in self._feed.training(epoch))

    def validation(self) -> Iterator[Any]:
        """Yield the batches of all validations."""
        while True:
            yield from (self._made(batch, factor=False) for batch in self._feed.validation())

    def _made(self, batch: Batch, *, factor: bool) -> Any:
        job, rows = self._job, max(batch.rows, 1)
        labels = [_narrow(part) for part in labels_of(batch.columns, job.labels, job["label_shapes"], lambda x, _: x)]
        if self._outputs and not job["label_shapes"]:
            if len(self._outputs) != len(labels):
                raise InvalidArgumentError(
                    f"the model has {len(self._outputs)} outputs, and there are {len(labels)} labels"
                )
            labels = [_shaped(part, out.shape) for part, out in zip(labels, self._outputs, strict=True)]
        made = (_one_or_all(inputs(self._model, batch.columns, job.features)), _one_or_all(labels))
        if not job.weight and not factor:
            return made
        weights = np.full(rows, batch.factor if factor else 1.0, np.float32)
        weights *= batch.columns[job.weight].astype(np.float32) if job.weight else 1
        return *made, _one_or_all([weights] * len(labels))


def _one_or_all(values: list[NDArray[Any]]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


class _Checkpoint(keras.callbacks.Callback):
    """Saves the state after each epoch; on rank 0, after the metrics are averaged."""

    def __init__(self, job: Job, history: dict[str, list[float]], scale: int) -> None:
        super().__init__()
        self._job, self.history, self._scale = job, history, scale

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        optimizer = self.model.optimizer
        values = [np.array(keras.ops.convert_to_numpy(variable)) for variable in optimizer.variables]
        state = {"weights": self.model.get_weights(), "optimizer": values, "epochs": epoch + 1}
        if hvd.rank() == 0:
            self._job.save({**state, "rate": _rate(optimizer) / self._scale, "history": self.history})


def _fit(model: Any, feed: Feed, job: Job) -> dict[str, list[float]]:
    """Train what is left to train, and return the history of all epochs."""
    scale = hvd.size() if job["scale_learning_rate"] else 1
    state = job.resumed()
    _compile(model, job, state, scale)
    rows, done, history = _Rows(model, feed, job), state.get("epochs", 0), state.get("history", {})
    if done >= job["epochs"]:
        return dict(history)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    last = _Checkpoint(job, history, scale)
    validation: dict[str, Any] = {}
    if feed.validates:
        feed.check_validation()
        validation = {"validation_data": rows.validation(), "validation_steps": feed.validation_steps()}
    model.fit(
        rows.training(done),
        steps_per_epoch=feed.steps,
        epochs=job["epochs"],
        initial_epoch=done,
        callbacks=[*callbacks, *(job["callbacks"] or []), last],
        verbose=job["verbose"] if hvd.rank() == 0 else 0,
        **validation,
    )
    return last.history


def _compile(model: Any, job: Job, state: dict[str, Any], scale: int) -> None:
    options = {"compression": job["gradient_compression"]} if job["gradient_compression"] else {}
    plain = keras.optimizers.get(job["optimizer"])
    optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=job["backward_passes_per_step"], **options)
    losses = job["loss"] if not isinstance(job["loss"], tuple) else list(job["loss"])
    weights = {"loss_weights": job["loss_weights"]} if job["loss_weights"] else {}
    model.compile(optimizer=optimizer, loss=losses, metrics=job["metrics"] or None, **weights)
    optimizer.build(model.trainable_variables)
    if state:
        model.set_weights(state["weights"])
        for variable, value in zip(optimizer.variables, state["optimizer"], strict=True):
            variable.assign(value)
        if state["rate"] is not None:
            optimizer.learning_rate = state["rate"]
    if scale != 1:
        optimizer.learning_rate = _rate(optimizer) * scale


def _rate(optimizer: Any) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _widths(model: Any, job: Job) -> dict[str, int]:
    """Count the numbers per row of each output; 0 where the model does not say."""
    outputs = getattr(model, "outputs", None) or []
    shapes = [out.shape[1:] for out in outputs]
    return {name: 0 if None in shape else int(np.prod(shape)) for name, shape in zip(job.labels, shapes, strict=False)}
