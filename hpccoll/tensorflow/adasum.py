# SPDX-License-Identifier: Apache-2.0
"""Adasum in graphs: the steps of hpccoll.frontend.adasum as operations of the graph.

An alltoall gives each rank its share of all vectors; on each level an allreduce sums the scalar products of each pair;
an allgather puts the shares together.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend import adasum, names
from hpccoll.frontend.adapter import is_floating
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.process_sets import world_of
from hpccoll.frontend.reductions import Sum
from hpccoll.horovod.operations import Operations
from hpccoll.tensorflow.adapter import ADAPTER
from hpccoll.tensorflow.graph_names import unique
from hpccoll.tensorflow.retraced import contains_place

__all__ = ["combine"]


def combine(operations: Operations[Any], call: Allreduce, tensors: Sequence[Any]) -> list[Any]:
    """Put the Adasum of each tensor into the graph.

    :raises NotDefinedError: the number of ranks is no power of two
    :raises UnsupportedError: a tensor has no real floating-point values
    """
    contains_place()
    size = world_of(call.process_set).size
    if size & (size - 1):
        raise errors.NotDefinedError(f"Adasum needs a power of two of ranks, the process set has {size}")
    results = []
    for i, tensor in enumerate(tensors):
        if not is_floating(tensor.dtype.name):
            raise errors.UnsupportedError(f"Adasum of {tensor.dtype.name}: it is for floating-point values")
        wide = tf.cast(tensor, tf.float64 if tensor.dtype == tf.float64 else tf.float32)
        scaled = wide if call.prescale == 1.0 else ADAPTER.scale(wide, call.prescale)
        number = call.process_set.process_set_id or 0
        name = unique("adasum", names.member(call.name, i, len(tensors)), number)
        made = tf.cast(_combine(operations, call, scaled, name, size), tensor.dtype)
        results.append(made if call.postscale == 1.0 else ADAPTER.scale(made, call.postscale))
    return results


def _combine(operations: Operations[Any], call: Allreduce, tensor: Any, name: str, size: int) -> Any:
    process_set, count = call.process_set, tf.size(tensor)
    each = tf.maximum(1, (count + size - 1) // size)
    shares = tf.reshape(tf.pad(tf.reshape(tensor, [-1]), [[0, each * size - count]]), [size, each])
    vectors, _ = operations.run_alltoall(shares, None, f"{name}.shares", process_set)
    vectors = tf.reshape(vectors, [size, each])
    for level in range(size.bit_length() - 1):
        a, b = vectors[0::2], vectors[1::2]
        wide_a, wide_b = tf.cast(a, tf.float64), tf.cast(b, tf.float64)
        pairs = ((wide_a, wide_a), (wide_b, wide_b), (wide_a, wide_b))
        products = tf.stack([tf.reduce_sum(x * y, axis=1) for x, y in pairs])
        total = Allreduce(f"{name}.level{level}", Sum, 1.0, 1.0, process_set, group=False)
        aa, bb, ab = tf.unstack(operations.run_allreduce(total, [products])[0])
        left, right = (
            tf.where(square < adasum.TINY, tf.ones_like(ab), 1 - ab / (2 * tf.maximum(square, adasum.TINY)))
            for square in (aa, bb)
        )
        vectors = tf.cast(left[:, tf.newaxis] * wide_a + right[:, tf.newaxis] * wide_b, tensor.dtype)
    whole = operations.run_allgather(vectors[0], f"{name}.result", process_set)
    return tf.reshape(whole[:count], tf.shape(tensor))
