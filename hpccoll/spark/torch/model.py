# SPDX-License-Identifier: Apache-2.0
"""TorchModel: calls a module of PyTorch for each row of a DataFrame."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from hpccoll.spark.estimators.model import FITTED, FrameModel, Predictor
from hpccoll.spark.estimators.parameters import Parameter
from hpccoll.spark.estimators.params import parameterized
from hpccoll.spark.estimators.rows import Arrays
from hpccoll.spark.torch.training import inputs, outputs

__all__ = ["TorchModel"]

TABLE = (
    *FITTED,
    Parameter("optimizer", None, "the optimizer, with its state after the training"),
    Parameter("input_shapes", None, "the shapes of the model's inputs"),
)


@parameterized(TABLE)
class TorchModel(FrameModel):
    """A model of Spark ML that adds the outputs of a `torch.nn.Module` to a DataFrame."""

    table = TABLE

    def _predictor(self) -> Predictor:
        return _Predictor(*map(self.getOrDefault, ("model", "feature_columns", "input_shapes")))


class _Predictor:
    def __init__(self, model: Any, features: Sequence[str], shapes: Any) -> None:
        self._model, self._features, self._shapes = model, features, shapes

    def __call__(self, columns: Arrays) -> list[NDArray[Any]]:
        self._model.eval()
        with torch.no_grad():
            results = outputs(self._model(*inputs(self._model, columns, self._features, self._shapes, "cpu")))
        return [result.float().numpy() for result in results]
