# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator: trains a model of Keras 3 on the rows of a DataFrame."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
from pyspark import cloudpickle

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.estimator import FrameEstimator
from hpccoll.spark.estimators.job import Job, Source
from hpccoll.spark.estimators.parameters import KERAS, SHARED
from hpccoll.spark.estimators.params import parameterized
from hpccoll.spark.keras.model import KerasModel
from hpccoll.spark.keras.training import train, unpickled

__all__ = ["KerasEstimator"]


@parameterized(SHARED + KERAS)
class KerasEstimator(FrameEstimator):
    """An estimator of Spark ML whose model is a `keras.Model`; the parameters are in docs/spark.md.

    Each column of features is an input of the model; a model of one input gets all columns side by side. They get the
    type and the shape of the input, and a label the shape of its output, if both have as many numbers.
    """

    table = SHARED + KERAS

    def _check_model(self) -> None:
        model, optimizer = self.getOrDefault("model"), self.getOrDefault("optimizer")
        if not isinstance(model, keras.Model) or not model.built:
            raise InvalidArgumentError("KerasEstimator: the model is no keras.Model that is built")
        optimizer = keras.optimizers.get(optimizer) if optimizer is not None else model.optimizer
        if optimizer is None:
            raise InvalidArgumentError("KerasEstimator: optimizer is required, as the model is not compiled")
        schedule = keras.optimizers.schedules.LearningRateSchedule
        if self.getOrDefault("scale_learning_rate") and isinstance(optimizer._learning_rate, schedule):  # noqa: SLF001
            raise InvalidArgumentError(
                "KerasEstimator: the optimizer's rate is a schedule: multiply it by the number of ranks, and give "
                "scale_learning_rate=False"
            )
        inputs, columns = len(getattr(model, "inputs", None) or [0]), len(self.getOrDefault("feature_cols"))
        if inputs not in (1, columns):
            raise InvalidArgumentError(
                f"KerasEstimator: the model has {inputs} inputs, and there are {columns} columns of features"
            )

    def _job(self) -> Job:
        """Pickle the model by itself, because the ranks unpickle it with the custom objects."""
        job = super()._job()
        values = {**job.values, "model": cloudpickle.dumps(job["model"])}
        values["optimizer"] = job["optimizer"] if job["optimizer"] is not None else job["model"].optimizer
        hidden = {} if job["use_gpu"] else {"CUDA_VISIBLE_DEVICES": "-1"}
        values["backend_env"] = {"KERAS_BACKEND": keras.backend.backend(), **hidden, **(job["backend_env"] or {})}
        return replace(job, values=values)

    def _trainer(self) -> Callable[[Source, Job], Any]:
        return train

    def _fitted(self, result: Any, metadata: dict[str, Any], run_id: str) -> KerasModel:
        history, weights, widths = result
        model = unpickled(cloudpickle.dumps(self.getOrDefault("model")), self.getOrDefault("custom_objects"))
        model.set_weights(weights)
        return KerasModel(
            history=history,
            model=model,
            feature_columns=self.getOrDefault("feature_cols"),
            label_columns=self.getOrDefault("label_cols"),
            custom_objects=self.getOrDefault("custom_objects"),
            run_id=run_id,
            _metadata={**metadata, "widths": widths},
        )
