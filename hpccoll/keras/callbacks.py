# SPDX-License-Identifier: Apache-2.0
"""Horovod's callbacks for Keras."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from hpccoll import errors
from hpccoll.frontend.objects import allgather_object
from hpccoll.frontend.variables import all_built
from hpccoll.horovod import rank, size
from hpccoll.keras.values import broadcast_variables, key_of, variables_of

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


def _is_variable(value: Any) -> bool:
    """Say whether this is a keras.Variable, or the tf.Variable inside of one."""
    return isinstance(value, keras.Variable) or (keras.backend.backend() == "tensorflow" and hasattr(value, "assign"))


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives the root's weights and the variables of its optimizer to all ranks, before the first step of fit().

    A model whose variables are made in the first step (a subclass, not built, with the backend tensorflow) gets them
    after that step.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None) -> None:
        """
        :param root_rank: global rank of the root
        :param device: has no effect; Horovod has this parameter
        :param local_variables: a variable of the model, or several, which each rank keeps as they are
        :raises InvalidArgumentError: (a ValueError) one is no variable
        """  # noqa: D205, D212
        super().__init__()
        del device
        self.root_rank, self.broadcast_done = root_rank, False
        self.local_variables: list[Any] = []
        given = (
            [] if local_variables is None else [local_variables] if _is_variable(local_variables) else local_variables
        )
        for variable in given:
            self.register_local_var(variable)

    def register_local_var(self, variable: Any) -> None:
        """Leave this variable as it is on each rank.

        :param variable: of the model
        :raises InvalidArgumentError: (a ValueError) it is no variable
        """
        if not _is_variable(variable):
            raise errors.InvalidArgumentError(f"a local variable is {variable!r}: give variables of the model")
        self.local_variables.append(variable)

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        if not self.broadcast_done and all_built(self.model):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        local = {key_of(variable) for variable in self.local_variables}
        broadcast_variables([v for v in variables_of(self.model) if key_of(v) not in local], self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks, for the callbacks that come after it in the list."""

    def __init__(self, device: str = "") -> None:
        """:param device: has no effect; Horovod has this parameter"""
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        del epoch
        if logs is None or size() == 1:
            return
        mine = {name: float(value) for name, value in logs.items() if _is_number(value)}
        each = allgather_object(mine, name="hpccoll.keras.metrics")
        each = [metrics for metrics in each if metrics is not None]
        for number, other in enumerate(each):
            if set(other) != set(each[0]):
                raise errors.MismatchError(
                    f"MetricAverageCallback: rank 0 has metrics {sorted(each[0])}, rank {number} has {sorted(other)}"
                )
        for name in mine:
            logs[name] = math.fsum(other[name] for other in each) / len(each)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to `initial_lr * multiplier`, from one epoch to another.

    The momentum is corrected as by Goyal et al. (2017, arXiv:1706.02677, section 2.1): when the rate changes, the
    momentum of SGD or RMSprop is scaled by the ratio of the rates, because Keras stores it multiplied by the rate.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """
        :param initial_lr: the learning rate that is multiplied
        :param multiplier: a number, or a function of the epoch, counted from 0; with staircase=False of its fraction,
            too
        :param start_epoch: the first epoch in which the rate is set
        :param end_epoch: the first one in which it is not set any more; None: it is set to the end
        :param staircase: set it at the beginning of an epoch; False: before each step
        :param momentum_correction: scale the optimizer's momentum when the rate changes
        :param steps_per_epoch: steps of an epoch, if Keras does not know them and staircase is False
        """  # noqa: D205, D212
        super().__init__()
        if not isinstance(initial_lr, (int, float, np.number)):
            raise errors.InvalidArgumentError(f"initial_lr is {initial_lr!r}: a number")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.multiplier = multiplier if callable(multiplier) else lambda _: multiplier
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        rate = self.model.optimizer
        try:
            rate.learning_rate = float(rate.learning_rate)
        except TypeError as error:
            raise errors.InvalidArgumentError(
                "the optimizer has a LearningRateSchedule, which this callback cannot change: give the optimizer a "
                "number"
            ) from error
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise errors.InvalidArgumentError("Keras does not know the steps of an epoch: give steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        if self.current_epoch < self.start_epoch or (
            self.end_epoch is not None and self.current_epoch >= self.end_epoch
        ):
            return
        if not self.staircase:
            self._set(self.current_epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._set(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        del epoch
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        if math.isclose(old, new, rel_tol=1e-7):
            return
        optimizer.learning_rate = new
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        collected = getattr(inner, "momentums", None) or getattr(inner, "_momentums", None) or []
        if self.momentum_correction and getattr(inner, "momentum", None) and old:
            for variable in collected:
                if variable is not None:
                    variable.assign(variable * (new / old))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr` in the first epochs, step by step.

    It follows Goyal et al. (2017, arXiv:1706.02677, section 2.2): `initial_lr` is the rate for the batch of all ranks.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """
        :param initial_lr: the rate after the warmup
        :param warmup_epochs: how many epochs it takes
        :param momentum_correction: scale the optimizer's momentum when the rate changes
        :param steps_per_epoch: steps of an epoch, if Keras does not know them
        :param verbose: 1: rank 0 prints a line at the end of the warmup
        """  # noqa: D205, D212
        self.verbose = verbose

        def multiplier(epoch: float) -> float:
            epoch += 1.0 / (self.steps_per_epoch or 1)  # the first step has more than the lowest rate
            return 1.0 / size() * (epoch * (size() - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr, multiplier, start_epoch=0, end_epoch=warmup_epochs, staircase=False,
            momentum_correction=momentum_correction, steps_per_epoch=steps_per_epoch,
        )  # fmt: skip

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == (self.end_epoch or 0) - 1 and self.verbose > 0 and rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the model on rank 0 whenever it is the best one so far; put MetricAverageCallback before it."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = "best.keras",
        save_weights_only: bool = False,
    ) -> None:
        """
        :param monitor: the metric that is compared
        :param verbose: see keras.callbacks.ModelCheckpoint, as for the other parameters
        :param mode: "min", "max" or "auto"
        :param save_freq: "epoch", or a number of steps
        :param filepath: ends with .keras; it may have fields, as "best-{epoch}.keras"
        :param save_weights_only: save no optimizer; then `filepath` ends with .weights.h5
        """  # noqa: D205, D212
        super().__init__(filepath, monitor, verbose, True, save_weights_only, mode, save_freq)

    def _save_model(self, epoch: int, batch: int | None, logs: Any) -> None:
        if rank() == 0:
            super()._save_model(epoch, batch, logs)
