# SPDX-License-Identifier: Apache-2.0
"""Optimizers of TensorFlow 1 (tf.compat.v1.train) that see the gradients of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Average
from hpccoll.tensorflow.internals import unconverted
from hpccoll.tensorflow.reducing import Groups, Reduction, local_scaled, reduction_for

__all__ = ["DistributedOptimizer"]


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Wraps an optimizer: compute_gradients() gives the gradients of all ranks."""

    def __init__(
        self, optimizer: Any, name: str, reduction: Reduction, *, scales_local: bool, use_locking: bool
    ) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer, self._reduction, self._scales_local = optimizer, reduction, scales_local
        self._local: dict[int, Any] = {}

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable on this rank.

        :param var: the variable
        """
        self._local[id(var)] = var

    @unconverted
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the gradients, and combine them over the ranks; the arguments are those of the optimizer."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        shared = [(gradient, var) for gradient, var in pairs if id(var) not in self._local]
        combined = iter(self._reduction.combine([gradient for gradient, _ in shared], [var for _, var in shared]))
        return [(next(combined) if id(var) not in self._local else self._own(gradient), var) for gradient, var in pairs]

    def _own(self, gradient: Any) -> Any:
        return local_scaled(gradient, self._reduction.process_set) if self._scales_local else gradient

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's."""
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer of tf.compat.v1.train that sees the gradients of all ranks.

    :param optimizer: a tf.compat.v1.train.Optimizer. Those of Keras belong to hpccoll.keras
    :param name: of the new optimizer
    :param use_locking: see tf.compat.v1.train.Optimizer
    :param device_dense: not used
    :param device_sparse: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param sparse_as_dense: turn a tf.IndexedSlices into a dense tensor first
    :param backward_passes_per_step: 1; for more, add the gradients up and call this optimizer once
    :param op: Average (default), Sum, Min, Max or Product
    :param gradient_predivide_factor: with Average: divide by it before the sum, and by the rest after it
    :param average_aggregated_gradients: for Horovod's signature
    :param num_groups: deprecated: as `groups`
    :param groups: into how many groups the gradients are put, or lists of variables; those of a group are finished
        together. None: each alone, fused where it pays
    :param process_set: the ranks that take part
    :param scale_local_gradients: divide the gradients that stay on their rank by the number of ranks
    :returns: the optimizer, with register_local_var()
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or the optimizer is distributed already
    :raises UnsupportedError: (a ValueError) several backward passes, or an optimizer of Keras
    """
    del device_dense, device_sparse, average_aggregated_gradients
    if isinstance(optimizer, _DistributedOptimizer):
        raise errors.InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise errors.UnsupportedError(
            f"optimizer is {type(optimizer).__name__}: this function is for those of tf.compat.v1.train; wrap one of "
            "Keras with hpccoll.keras.DistributedOptimizer, or use DistributedGradientTape"
        )
    if backward_passes_per_step != 1:
        raise errors.UnsupportedError(
            f"backward_passes_per_step is {backward_passes_per_step}: add the gradients up, and apply them once"
        )
    reduction = reduction_for(
        "gradient", compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set
    )
    own = name or f"Distributed{type(optimizer).__name__}"
    return _DistributedOptimizer(optimizer, own, reduction, scales_local=scale_local_gradients, use_locking=use_locking)
