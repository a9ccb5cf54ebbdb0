# SPDX-License-Identifier: Apache-2.0
"""Optimizers of TensorFlow 1 (tf.compat.v1.train) that see the gradients of all ranks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.gradient_step import GradientStep, either_groups, gradient_step
from hpccoll.frontend.groups import Groups
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Adasum, Average, Op
from hpccoll.tensorflow.accumulation import Accumulation, Passes, after, own_variable
from hpccoll.tensorflow.own_errors import public
from hpccoll.tensorflow.reducing import VARIABLES, combine

__all__ = ["DistributedOptimizer"]


class _Wrapping(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Passes each call on to the optimizer that it wraps."""

    def __init__(self, optimizer: Any, name: str, *, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._local: dict[int, Any] = {}

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable on this rank.

        :param var: the variable
        """
        self._local[id(var)] = var

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's method."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Call the optimizer's method."""
        return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's method."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's method."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's method."""
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapping):
    """Wraps an optimizer: compute_gradients() gives the gradients of all ranks."""

    def __init__(
        self,
        optimizer: Any,
        step: GradientStep,
        added_up: Accumulation,
        *,
        use_locking: bool,
    ) -> None:
        super().__init__(optimizer, added_up.passes.name, use_locking=use_locking)
        self._step = step
        self._added_up = added_up if added_up.passes.passes > 1 else None

    @public
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the gradients, and combine them over the ranks; the arguments are those of the optimizer."""
        gradients, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs), strict=True)

        def shared(whole: Sequence[Any]) -> list[Any]:
            return combine(self._step, whole, variables, self._local)

        combined = self._added_up.add(gradients, shared) if self._added_up else shared(gradients)
        return list(zip(combined, variables, strict=True))

    @public
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Call the optimizer's method after the last backward pass of a step; each pass counts in global_step."""
        pairs = list(grads_and_vars)
        if self._added_up is None:
            return super().apply_gradients(pairs, global_step, name)
        return self._added_up.apply(
            [gradient for gradient, _ in pairs],
            lambda: self._optimizer.apply_gradients(pairs, global_step=global_step, name=name),
            lambda: None if global_step is None else tf.compat.v1.assign_add(global_step, 1),
        )


class _DeltaOptimizer(_Wrapping):
    """Wraps an optimizer for Adasum: each rank steps alone, then the changes of all ranks are combined.

    So the changes include the optimizer's momentum and scaling, see hpccoll.frontend.deltas.
    """

    def __init__(self, optimizer: Any, step: GradientStep, passes: Passes, *, use_locking: bool) -> None:
        super().__init__(optimizer, passes.name, use_locking=use_locking)
        self._step, self._passes = dataclasses.replace(step, name="delta"), passes
        self._starts: dict[int, Any] = {}

    @public
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Call the optimizer's method; after the last backward pass of a step, combine the changes since the first."""
        pairs = list(grads_and_vars)
        variables = [v for _, v in pairs]
        places = [at for at, (gradient, v) in enumerate(pairs) if gradient is not None and id(v) not in self._local]
        shared = [variables[at] for at in places]
        keepers = [self._keeper(at, v) for at, v in enumerate(shared)]
        between = self._passes.between()
        starts = [
            tf.cond(between, lambda v=v: _copy(v), lambda k=k: k.read_value())
            for v, k in zip(shared, keepers, strict=True)
        ]
        with tf.control_dependencies(starts):
            stepped = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        def last() -> Any:
            deltas: list[Any] = [None] * len(pairs)
            for at, v, start in zip(places, shared, starts, strict=True):
                deltas[at] = _copy(v) - start
            whole = combine(self._step, deltas, variables, self._local)
            return after([v.assign(start + whole[at]) for at, v, start in zip(places, shared, starts, strict=True)])

        def other() -> Any:
            return after([keeper.assign(start) for keeper, start in zip(keepers, starts, strict=True)])

        with tf.control_dependencies([] if tf.executing_eagerly() else [stepped]):
            ended = tf.cond(self._passes.is_last(), last, other)
        with tf.control_dependencies([ended]):
            counted = self._passes.count()
        return None if tf.executing_eagerly() else tf.group(counted)

    def _keeper(self, at: int, variable: Any) -> Any:
        if at not in self._starts:
            shape, dtype = variable.shape, variable.dtype.base_dtype
            self._starts[at] = own_variable(lambda: tf.zeros(shape, dtype), dtype, f"{self._passes.name}/start_{at}")
        return self._starts[at]


def _copy(variable: Any) -> Any:
    """Copy the values of a variable: in graphs of TensorFlow 1, an identity would share the variable's memory."""
    return tf.raw_ops.DeepCopy(x=tf.convert_to_tensor(variable))


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Op = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups[Any] = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer that sees the gradients of all ranks.

    :param optimizer: a tf.compat.v1.train.Optimizer, or one of Keras
    :param name: the name of the new optimizer
    :param use_locking: see tf.compat.v1.train.Optimizer
    :param device_dense: not used
    :param device_sparse: not used
    :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
    :param sparse_as_dense: turn a tf.IndexedSlices into a dense tensor first
    :param backward_passes_per_step: gradients of so many calls are added up and combined once, in the last call;
        apply_gradients() changes nothing in the other ones
    :param op: Average (default), Sum, Min, Max or Product. Adasum combines the changes that the optimizer's step makes
    :param gradient_predivide_factor: with Average: divide by it before the sum, and by the rest after it
    :param average_aggregated_gradients: divide the sum of the gradients by backward_passes_per_step
    :param num_groups: deprecated: as `groups`
    :param groups: see DistributedGradientTape()
    :param process_set: the ranks that take part
    :param scale_local_gradients: divide the gradients that stay on their rank by the number of ranks
    :returns: the optimizer, with register_local_var(); for one of Keras, what hpccoll.tensorflow.keras makes of it
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or the optimizer is distributed already
    """
    if _is_of_keras(optimizer):
        from hpccoll.tensorflow import keras

        return keras.DistributedOptimizer(
            optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
            backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set,
            scale_local_gradients,
        )  # fmt: skip
    _check_optimizer(optimizer)
    step = gradient_step(
        "gradient", VARIABLES, op=op, compression=compression, predivide=gradient_predivide_factor,
        groups=either_groups(num_groups, groups), sparse_as_dense=sparse_as_dense, process_set=process_set,
        scales_local=scale_local_gradients,
    )  # fmt: skip
    passes = Passes(backward_passes_per_step, name or f"Distributed{type(optimizer).__name__}")
    if step.op is Adasum:
        return _DeltaOptimizer(optimizer, step, passes, use_locking=use_locking)
    added_up = Accumulation(passes, average=average_aggregated_gradients, sparse_as_dense=sparse_as_dense)
    return _DistributedOptimizer(optimizer, step, added_up, use_locking=use_locking)


def _check_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, _Wrapping):
        raise errors.InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise errors.InvalidArgumentError(
            f"optimizer is {optimizer!r}: give one of tf.compat.v1.train or of Keras, or use DistributedGradientTape"
        )


def _is_of_keras(optimizer: Any) -> bool:
    """Return whether an object's class comes from Keras, without importing Keras."""
    return any(cls.__module__.split(".")[0] in ("keras", "tf_keras") for cls in type(optimizer).__mro__)
