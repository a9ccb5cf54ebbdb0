# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102 - hpccoll.frontend.adapter has the methods' docstrings
"""TensorFlow's adapter for hpccoll.frontend: tensors that exist now.

The library reads a tensor in host memory where it lies. One on a GPU goes through host memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hpccoll import arrays, errors
from hpccoll._core import Buffer
from hpccoll.frontend.adapter import SparseParts, TensorAdapter

__all__ = ["ADAPTER", "TensorFlowAdapter", "code_of", "tensor_of"]

_CODES = {getattr(tf, name): code for code, name in enumerate(arrays.NAMES) if hasattr(tf, name)}
_HOST = "CPU:0"


def code_of(dtype: Any) -> int:
    """Return the library's code of a dtype of TensorFlow.

    :raises UnsupportedError: (a ValueError) there is none
    """
    code = _CODES.get(dtype)
    if code is None:
        raise errors.UnsupportedError(f"dtype {dtype.name} is not supported; one of: {', '.join(arrays.NAMES)}")
    return code


def tensor_of(x: Any) -> Any:
    """Return a tensor of the values: `x` itself, the value of a variable, or a conversion.

    :raises InvalidArgumentError: (a ValueError) this is no dense tensor
    """
    if isinstance(x, tf.Tensor):
        return x
    if isinstance(x, tf.IndexedSlices):
        raise errors.UnsupportedError("an IndexedSlices: allreduce() takes it with Sum or Average, or convert it first")
    if isinstance(x, tf.RaggedTensor | tf.SparseTensor):
        raise errors.UnsupportedError(f"a {type(x).__name__}: hpccoll.tensorflow takes dense tensors and IndexedSlices")
    try:
        return tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgumentError(f"a {type(x).__name__} is no tensor: {error}") from None


@functools.cache
def _has_gpus() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))


@functools.lru_cache(maxsize=4096)
def _shape_tensor(shape: tuple[int, ...]) -> Any:
    with tf.device(_HOST):
        return tf.constant(shape, tf.int32, shape=[len(shape)])


def _new(dtype: Any, shape: tuple[int, ...]) -> Any:
    try:
        if not _has_gpus():
            return tf.raw_ops.Empty(shape=_shape_tensor(shape), dtype=dtype, init=False)
        with tf.device(_HOST):
            return tf.raw_ops.Empty(shape=_shape_tensor(shape), dtype=dtype, init=False)
    except tf.errors.NotFoundError:
        code_of(dtype)  # says that the library has no such dtype either
        raise


class TensorFlowAdapter:
    """See hpccoll.frontend.adapter.TensorAdapter; the facts and values() are for symbolic tensors, too."""

    # ---- facts ---------------------------------------------------------------------------------------

    def dtype(self, tensor: Any) -> str:
        name: str = tensor.dtype.name
        return name

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def on_device(self, tensor: Any) -> bool:
        del tensor
        return False  # contiguous() has copied it to the host

    # ---- memory --------------------------------------------------------------------------------------

    def contiguous(self, tensor: Any) -> Any:
        tensor = tensor_of(tensor)
        if not tf.executing_eagerly():
            raise errors.UnsupportedError("a tensor of a graph, which has no values yet")
        if _has_gpus() and "CPU" not in tensor.backing_device:
            with tf.device(_HOST):
                tensor = tf.identity(tensor)
        return tensor

    def buffer(self, tensor: Any, shape: Sequence[int] | None = None) -> Buffer:
        array = self.to_numpy(tensor)
        address = array.__array_interface__["data"][0]
        return Buffer(address, code_of(tensor.dtype), array.shape if shape is None else shape, array)

    def empty(self, like: Any, shape: Sequence[int]) -> Any:
        return _new(like.dtype, tuple(shape))

    def from_bytes(self, received: Any, like: Any, shape: Sequence[int]) -> Any:
        target = _new(like.dtype, tuple(shape))
        array = self.to_numpy(target)  # read-only to NumPy; the tensor is not the program's yet
        if array.size:
            ctypes.memmove(array.__array_interface__["data"][0], received.ctypes.data, array.nbytes)
        return target

    def to_numpy(self, tensor: Any) -> np.ndarray:
        code_of(tensor.dtype)
        bits = tf.bitcast(tensor, tf.uint16) if tensor.dtype == tf.bfloat16 else tensor
        return np.asarray(memoryview(bits))

    def from_numpy(self, array: np.ndarray, dtype: str | None = None) -> Any:
        with tf.device(_HOST):
            tensor = tf.constant(array)
            return tensor if dtype is None or tensor.dtype.name == dtype else tf.bitcast(tensor, getattr(tf, dtype))

    # ---- values --------------------------------------------------------------------------------------

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tf.cast(tensor, getattr(tf, dtype))

    def scale(self, tensor: Any, factor: float) -> Any:
        if tensor.dtype.is_floating or tensor.dtype.is_complex:
            return tensor * tf.cast(factor, tensor.dtype)
        return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)

    def divide(self, tensor: Any, divisor: float) -> Any:
        return tensor / tf.cast(divisor, tensor.dtype)

    def add(self, x: Any, y: Any, factor: float) -> Any:
        return x + self.scale(y, factor)

    def overwrite(self, target: Any, source: Any) -> None:
        target.assign(source)

    def changed(self, tensor: Any) -> None:
        pass

    # ---- sparse tensors ------------------------------------------------------------------------------

    def is_sparse(self, tensor: Any) -> bool:
        return isinstance(tensor, tf.IndexedSlices)

    def sparse_parts(self, tensor: Any, *, coalesce: bool) -> SparseParts[Any]:
        indices, values = tensor.indices, tensor.values
        if coalesce:
            indices, where = tf.unique(indices)
            values = tf.math.unsorted_segment_sum(values, where, tf.size(indices))
        return SparseParts(tf.cast(indices, tf.int64)[:, tf.newaxis], values)

    def from_sparse(self, parts: SparseParts[Any], shape: Sequence[int], *, coalesce: bool) -> Any:
        made = tf.IndexedSlices(parts.values, parts.indices[:, 0], tf.constant(tuple(shape), tf.int64))
        if coalesce:
            again = self.sparse_parts(made, coalesce=True)
            made = tf.IndexedSlices(again.values, again.indices[:, 0], made.dense_shape)
        return made

    def to_dense(self, tensor: Any) -> Any:
        return tf.convert_to_tensor(tensor)

    def sparse_dimensions(self, tensor: Any) -> int:
        del tensor
        return 1

    def to_sparse(self, tensor: Any, dimensions: int) -> Any:
        del dimensions
        rows = tf.where(tf.reduce_any(tf.reshape(tensor, [tensor.shape[0], -1]) != 0, axis=1))[:, 0]
        return tf.IndexedSlices(tf.gather(tensor, rows), rows, tf.constant(tuple(tensor.shape), tf.int64))


ADAPTER: TensorAdapter[Any] = TensorFlowAdapter()
