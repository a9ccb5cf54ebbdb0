# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator for Lightning: trains a LightningModule on the rows of a DataFrame, by Lightning's own Trainer."""

import copy
from collections.abc import Callable
from typing import Any

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.estimators.estimator import FrameEstimator
from hpccoll.spark.estimators.job import Job, Source
from hpccoll.spark.estimators.parameters import LIGHTNING, OF_THE_MODULE
from hpccoll.spark.estimators.params import parameterized
from hpccoll.spark.lightning.training import FIXED, module_class, train
from hpccoll.spark.torch.model import TorchModel
from hpccoll.spark.torch.training import check_inputs

__all__ = ["TorchEstimator"]


@parameterized(LIGHTNING)
class TorchEstimator(FrameEstimator):
    """An estimator of Spark ML whose model is a LightningModule; the parameters are in docs/spark.md.

    `training_step` and `validation_step` get a dict of the batch's columns by name, as with Horovod; `forward`, which
    transform() calls, gets the columns of features, or all of them side by side if it has one argument.
    """

    table = LIGHTNING
    required = ("model", "feature_cols", "label_cols")
    refused = OF_THE_MODULE

    def _check_model(self) -> None:
        model, given = self.getOrDefault("model"), self.getOrDefault("trainer_args")
        base = module_class(model)
        if base is None:
            raise InvalidArgumentError(
                f"TorchEstimator: the model is no LightningModule but a {type(model).__name__}, for which "
                "hpccoll.spark.torch has an estimator"
            )
        if type(model).forward is base.forward:
            raise InvalidArgumentError(
                f"TorchEstimator: {type(model).__name__} has no forward(), which transform() calls for each row"
            )
        ours = sorted(FIXED & set(given or {}))
        if ours:
            raise InvalidArgumentError(
                f"TorchEstimator: trainer_args has {ours[0]}, which the estimator sets: the ranks are Spark's, and "
                "epochs, callbacks and logger are parameters"
            )
        check_inputs(model, self.getOrDefault("input_shapes"), len(self.getOrDefault("feature_cols")))

    def _trainer(self) -> Callable[[Source, Job], Any]:
        return train

    def _fitted(self, result: Any, metadata: dict[str, Any], run_id: str) -> TorchModel:
        history, state, widths = result
        model = copy.deepcopy(self.getOrDefault("model"))
        model.load_state_dict(state)
        return TorchModel(
            history=history,
            model=model.eval(),
            feature_columns=self.getOrDefault("feature_cols"),
            label_columns=self.getOrDefault("label_cols"),
            input_shapes=self.getOrDefault("input_shapes"),
            run_id=run_id,
            _metadata={**metadata, "widths": widths},
        )
