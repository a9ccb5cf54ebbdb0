# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the samples of all ranks, as a layer of Keras."""

from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.moments import moments_of, summands
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Sum
from hpccoll.tensorflow.operations import allreduce
from hpccoll.tensorflow.own_errors import public

__all__ = ["SyncBatchNormalization"]


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """A BatchNormalization whose mean and variance, in training, are those of the samples of all ranks.

    The ranks may have different numbers of samples. The arguments are those of BatchNormalization, by their names, and
    `process_set`.
    """

    def __init__(self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        """
        :param fused: False; Horovod has this parameter
        :param process_set: the ranks that take part
        :param kwargs: see BatchNormalization
        :raises UnsupportedError: (a ValueError) `fused` is True
        """  # noqa: D205, D212
        if fused is not False:
            raise errors.UnsupportedError(
                "SyncBatchNormalization: fused=True computes on one device alone: leave it out"
            )
        super().__init__(**kwargs)
        self.process_set = process_set

    @public
    def _moments(self, inputs: Any, mask: Any = None) -> tuple[Any, Any]:
        """Return mean and variance over all axes except the features, of unmasked values: see frontend.moments."""
        axes = [i for i in range(len(inputs.shape)) if i != self.axis % len(inputs.shape)]
        wide = (
            tf.cast(inputs, tf.float32) if inputs.dtype in (tf.float16, tf.bfloat16) else tf.convert_to_tensor(inputs)
        )
        if mask is None:
            present, count = tf.ones([], wide.dtype), tf.size(wide, tf.int64) // wide.shape[self.axis]
        else:
            present, count = tf.cast(mask, wide.dtype)[..., tf.newaxis], tf.math.count_nonzero(mask)
        divisor = tf.cast(tf.maximum(count, 1), wide.dtype)
        mean = tf.reduce_sum(wide * present, axes, keepdims=True) / divisor
        variance = tf.reduce_sum(tf.square(wide - mean) * present, axes) / divisor
        each = (tf.cast(x, tf.float64) for x in (count, tf.reshape(mean, [-1]), variance))
        mean, variance = self._combined(*each, exact=wide.dtype == tf.float64)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)

    def _combined(self, count: Any, mean: Any, variance: Any, *, exact: bool) -> tuple[Any, Any]:
        k: Any = tf.zeros([], tf.float64)
        if exact:
            total, sums = self._summed("means", count, count * mean)
            k = tf.stop_gradient(sums / total)  # the moments do not depend on it
        total, both = self._summed("moments", count, tf.concat(summands(count, mean, variance, k), 0))
        sums, squares = tf.split(both, 2)
        mean, variance = moments_of(total, sums, squares, k)
        return mean, tf.maximum(variance, 0)

    def _summed(self, what: str, count: Any, others: Any) -> tuple[Any, Any]:
        """Return the sum of a count over the ranks, at least 1, and the sums of other values."""
        name = f"{what}.{getattr(self, 'path', None) or self.name}"
        sums = allreduce(tf.concat([[count], others], 0), op=Sum, name=name, process_set=self.process_set)
        return tf.maximum(sums[0], 1), sums[1:]
