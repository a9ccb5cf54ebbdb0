# SPDX-License-Identifier: Apache-2.0
"""KerasModel: calls a model of Keras 3 for each row of a DataFrame."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark import cloudpickle

from hpccoll import inherited
from hpccoll.spark.estimators.model import FITTED, FrameModel, Predictor
from hpccoll.spark.estimators.parameters import Parameter
from hpccoll.spark.estimators.params import parameterized
from hpccoll.spark.estimators.rows import Arrays

__all__ = ["KerasModel"]

TABLE = (*FITTED, Parameter("custom_objects", {}, "classes and functions that Keras does not know, by name"))
ROWS = 1024
"""Rows that are predicted at once."""


@parameterized(TABLE)
class KerasModel(FrameModel):
    """A model of Spark ML that adds the outputs of a `keras.Model` to a DataFrame."""

    table = TABLE

    def _predictor(self) -> Predictor:
        import keras

        model, objects = cloudpickle.dumps(self.getOrDefault("model")), self.getOrDefault("custom_objects")
        return _Predictor(model, self.getOrDefault("feature_columns"), objects, keras.backend.backend())


class _Predictor:
    """Unpickles the model at its first use, when Keras has the backend of the driver's."""

    def __init__(self, model: bytes, features: Sequence[str], objects: dict[str, Any], backend: str) -> None:
        self._pickled, self._features, self._objects, self._backend = model, features, objects, backend
        self._model: Any = None

    def __call__(self, columns: Arrays) -> list[NDArray[Any]]:
        if self._model is None:
            if "keras" not in sys.modules:
                inherited.publish("KERAS_BACKEND", self._backend)
            from hpccoll.spark.keras import training

            self._model = training.unpickled(self._pickled, self._objects)
        from hpccoll.spark.keras.training import inputs, listed

        arguments = inputs(self._model, columns, self._features)
        one = arguments[0] if len(arguments) == 1 else arguments
        return [np.asarray(each) for each in listed(self._model.predict(one, batch_size=ROWS, verbose=0))]
