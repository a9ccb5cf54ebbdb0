# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator: trains a module of PyTorch on the rows of a DataFrame."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.estimator import FrameEstimator
from hpccoll.spark.estimators.job import Job, Source
from hpccoll.spark.estimators.parameters import SHARED, TORCH
from hpccoll.spark.estimators.params import parameterized
from hpccoll.spark.torch.model import TorchModel
from hpccoll.spark.torch.training import check_inputs, listed, one_each, train

__all__ = ["TorchEstimator"]


@parameterized(SHARED + TORCH)
class TorchEstimator(FrameEstimator):
    """An estimator of Spark ML whose model is a `torch.nn.Module`; the parameters are in docs/spark.md.

    Each column of features is an argument of `forward`; a module of one argument gets all columns side by side.
    Features, labels and weights are float32. A label gets the shape of its output, if both have as many numbers.
    """

    table = SHARED + TORCH
    required = ("model", "optimizer", "feature_cols", "label_cols")

    def _check_model(self) -> None:
        model, optimizer = self.getOrDefault("model"), self.getOrDefault("optimizer")
        losses, makers = self.getOrDefault("loss"), self.getOrDefault("loss_constructors")
        if not isinstance(model, torch.nn.Module):
            raise InvalidArgumentError(f"TorchEstimator: the model is no torch.nn.Module but a {type(model).__name__}")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidArgumentError(f"TorchEstimator: {type(optimizer).__name__} is no torch.optim.Optimizer")
        own = {id(parameter) for parameter in model.parameters()}
        if not all(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            raise InvalidArgumentError("TorchEstimator: the optimizer has parameters that the model has not")
        if (losses is None) == (makers is None):
            raise InvalidArgumentError("TorchEstimator: give loss or loss_constructors")
        labels = len(self.getOrDefault("label_cols"))
        one_each(listed(losses or makers), labels, "losses")
        one_each(self.getOrDefault("loss_weights") or [1.0], labels, "loss_weights")
        for group in self.getOrDefault("metrics") or []:
            one_each(listed(group), labels, "metrics")
        check_inputs(model, self.getOrDefault("input_shapes"), len(self.getOrDefault("feature_cols")))

    def _trainer(self) -> Callable[[Source, Job], Any]:
        return train

    def _fitted(self, result: Any, metadata: dict[str, Any], run_id: str) -> TorchModel:
        history, state, widths = result
        model, optimizer = copy.deepcopy((self.getOrDefault("model"), self.getOrDefault("optimizer")))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return TorchModel(
            history=history,
            model=model.eval(),
            optimizer=optimizer,
            feature_columns=self.getOrDefault("feature_cols"),
            label_columns=self.getOrDefault("label_cols"),
            input_shapes=self.getOrDefault("input_shapes"),
            run_id=run_id,
            _metadata={**metadata, "widths": widths},
        )
