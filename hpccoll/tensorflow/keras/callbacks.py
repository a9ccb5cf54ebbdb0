# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.keras.callbacks under its name."""

from typing import Any

from hpccoll.keras import callbacks
from hpccoll.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


class BestModelCheckpoint(callbacks.BestModelCheckpoint):
    """hpccoll.keras.callbacks.BestModelCheckpoint, with the order of arguments of this module of Horovod."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
    ) -> None:
        """
        :param monitor: the metric that is compared
        :param verbose: see keras.callbacks.ModelCheckpoint, as for the other parameters
        :param save_weights_only: save no optimizer
        :param mode: "min", "max" or "auto"
        :param save_freq: "epoch", or a number of steps
        :param filepath: default: best.keras, or best.weights.h5 for weights alone
        """  # noqa: D205, D212
        path = filepath or ("best.weights.h5" if save_weights_only else "best.keras")
        super().__init__(monitor, verbose, mode, save_freq, path, save_weights_only)
