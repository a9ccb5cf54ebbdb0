# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the samples of all ranks, as a layer of Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Sum
from hpccoll.tensorflow.internals import unconverted
from hpccoll.tensorflow.operations import allreduce

__all__ = ["SyncBatchNormalization"]


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """A BatchNormalization whose mean and variance, in training, are those of the samples of all ranks.

    The ranks may have different numbers of samples. The arguments are those of BatchNormalization, by their names, and
    `process_set`.
    """

    def __init__(self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        """
        :param fused: False; it is there because Horovod has it
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

    @unconverted
    def _moments(self, inputs: Any, mask: Any = None) -> tuple[Any, Any]:
        """Return mean and variance over all axes but that of the features, of what a mask has."""
        axes = [i for i in range(len(inputs.shape)) if i != self.axis % len(inputs.shape)]
        wide = (
            tf.cast(inputs, tf.float32) if inputs.dtype in (tf.float16, tf.bfloat16) else tf.convert_to_tensor(inputs)
        )
        present = tf.ones_like(wide)
        if mask is not None:
            present *= tf.cast(mask, wide.dtype)[..., tf.newaxis]
        own = tf.concat(
            [
                tf.reduce_sum(wide * present, axes),
                tf.reduce_sum(tf.square(wide) * present, axes),
                tf.reduce_sum(present, axes)[:1],
            ],
            axis=0,
        )
        name = getattr(self, "path", None) or self.name
        sums = allreduce(own, op=Sum, name=f"moments.{name}", process_set=self.process_set)
        features = (tf.size(sums) - 1) // 2
        total = tf.maximum(sums[-1], 1)
        mean = sums[:features] / total
        variance = tf.maximum(sums[features:-1] / total - tf.square(mean), 0)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)
