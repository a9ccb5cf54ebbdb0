# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's adapter for hpccoll.frontend: tensors that exist now.

The library reads a tensor in host memory in place. A tensor on a GPU is first copied to host memory.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hpccoll import arrays, errors
from hpccoll._core import Buffer
from hpccoll.frontend.adapter import SparseParts, TensorAdapter
from hpccoll.tensorflow.kernels import extension

__all__ = ["ADAPTER", "TensorFlowAdapter", "code_of", "memory_of", "new_tensor", "on_host", "tensor_of"]

_CODES = {getattr(tf, name): code for code, name in enumerate(arrays.NAMES) if hasattr(tf, name)}
_HOST = "CPU:0"


def _kind_of(name: str) -> tuple[int, int]:
    if name == "bfloat16":
        return 4, 16
    dtype = np.dtype(name)
    return {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[dtype.kind], 8 * dtype.itemsize


_KINDS = [_kind_of(name) for name in arrays.NAMES]
"""DLPack's kind and bits of each of the library's dtypes."""


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


def on_host(tensor: Any) -> Any:
    """Return the tensor, or a copy of one on a GPU."""
    if _has_gpus() and "CPU" not in tensor.backing_device:
        with tf.device(_HOST):
            return tf.identity(tensor)
    return tensor


def memory_of(tensor: Any) -> tuple[memoryview, int, tuple[int, ...]]:
    """Return a tensor's memory, which is read-only to Python, its address and its shape."""
    view = memoryview(_without_bfloat16(tensor))
    return view, *extension().read(view)


def new_tensor(dtype: int, shape: tuple[int, ...]) -> tuple[Any, int]:
    """Make a tensor in host memory for a result; return it and its address.

    The tensor reuses the memory of an earlier result of this size that the program has dropped, if there is one.

    :param dtype: the library's code
    """
    capsule, address = extension().new_result(shape, *_KINDS[dtype])
    return tf.experimental.dlpack.from_dlpack(capsule), address


def _without_bfloat16(tensor: Any) -> Any:
    """Return the tensor, or one of uint16 in the same memory: a memoryview has no bfloat16."""
    return tf.bitcast(tensor, tf.uint16) if tensor.dtype is tf.bfloat16 else tensor


class TensorFlowAdapter:
    """See hpccoll.frontend.adapter.TensorAdapter; the facts and values() also take symbolic tensors."""

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
        return on_host(tensor)

    def buffer(self, tensor: Any, shape: Sequence[int] | None = None) -> Buffer:
        code = code_of(tensor.dtype)
        view, address, whole_shape = memory_of(tensor)
        return Buffer(address, code, whole_shape if shape is None else shape, view)

    def empty(self, like: Any, shape: Sequence[int]) -> Any:
        return new_tensor(code_of(like.dtype), tuple(shape))[0]

    def from_bytes(self, received: Any, like: Any, shape: Sequence[int]) -> Any:
        target, address = new_tensor(code_of(like.dtype), tuple(shape))
        if received.nbytes:
            ctypes.memmove(address, received.ctypes.data, received.nbytes)
        return target

    def to_numpy(self, tensor: Any) -> np.ndarray:
        code_of(tensor.dtype)
        return np.asarray(memoryview(_without_bfloat16(tensor)))

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
