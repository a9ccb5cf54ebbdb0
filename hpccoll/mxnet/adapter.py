# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG002 - hpccoll.frontend.adapter has the methods' arguments and docstrings
"""MXNet's adapter for hpccoll.frontend: arrays in host memory.

MXNet computes in its engine's threads. So the adapter waits for all readers and writers of an array before it returns
the address; from then on the memory belongs to the library until the operation is done.
"""

import ctypes
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from hpccoll import arrays, errors
from hpccoll._core import Buffer
from hpccoll.frontend.adapter import ParameterAdapter, SparseParts

__all__ = ["ADAPTER", "MxnetAdapter"]

Tensor = Any  # mxnet.nd.NDArray, which has no types

_listeners: dict[int, Callable[[], None]] = {}
"""By the parameter's id: MXNet has no hooks, so DistributedTrainer calls them."""


class MxnetAdapter:
    """See hpccoll.frontend.adapter.ParameterAdapter; parameters are mxnet.gluon.Parameter."""

    parameter_type: type = mx.gluon.Parameter

    # ---- facts ---------------------------------------------------------------------------------------

    def dtype(self, tensor: Tensor) -> str:
        return str(np.dtype(tensor.dtype).name)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def on_device(self, tensor: Tensor) -> bool:
        return bool(tensor.context.device_type == "gpu")

    # ---- memory --------------------------------------------------------------------------------------

    def contiguous(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, mx.nd.NDArray):
            raise errors.InvalidArgumentError(f"a {type(tensor).__name__} is no mxnet.nd.NDArray")
        if self.on_device(tensor):
            raise errors.UnsupportedError(f"an array on {tensor.context}: copy it to the host, as_in_context(mx.cpu())")
        if self.is_sparse(tensor):
            raise errors.UnsupportedError(f"storage type {tensor.stype} is not supported: use tostype('default')")
        return tensor

    def buffer(self, tensor: Tensor, shape: Sequence[int] | None = None) -> Buffer:
        code = arrays.dtype_code(np.dtype(tensor.dtype))
        return Buffer(self.address(tensor), code, tensor.shape if shape is None else shape, tensor)

    def empty(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        return mx.nd.empty(tuple(shape), ctx=like.context, dtype=like.dtype)

    def from_bytes(self, received: Any, like: Tensor, shape: Sequence[int]) -> Tensor:
        return self.from_numpy(received.view(np.dtype(like.dtype)).reshape(shape))

    def to_numpy(self, tensor: Tensor) -> np.ndarray:
        array: np.ndarray = tensor.asnumpy()
        return array

    def from_numpy(self, array: np.ndarray, dtype: str | None = None) -> Tensor:
        typed = array if dtype is None else array.view(dtype)
        return mx.nd.array(typed, dtype=typed.dtype)

    # ---- values --------------------------------------------------------------------------------------

    def cast(self, tensor: Tensor, dtype: str) -> Tensor:
        return tensor.astype(dtype, copy=False)

    def scale(self, tensor: Tensor, factor: float) -> Tensor:
        wide = tensor if np.dtype(tensor.dtype).kind == "f" else tensor.astype("float64")
        return (wide * factor).astype(tensor.dtype, copy=False)

    def divide(self, tensor: Tensor, divisor: float) -> Tensor:
        return tensor / divisor

    def add(self, x: Tensor, y: Tensor, factor: float) -> Tensor:
        return x + factor * y

    def overwrite(self, target: Tensor, source: Tensor) -> None:
        source.copyto(target)

    def changed(self, tensor: Tensor) -> None:
        pass  # MXNet caches nothing that depends on the values

    # ---- sparse tensors ------------------------------------------------------------------------------

    def is_sparse(self, tensor: Tensor) -> bool:
        return bool(tensor.stype != "default")

    def sparse_parts(self, tensor: Tensor, *, coalesce: bool) -> SparseParts[Tensor]:
        if tensor.stype != "row_sparse":
            raise errors.UnsupportedError(f"storage type {tensor.stype} is not supported: use tostype('default')")
        return SparseParts(tensor.indices.reshape((-1, 1)), tensor.data)

    def from_sparse(self, parts: SparseParts[Tensor], shape: Sequence[int], *, coalesce: bool) -> Tensor:
        """See TensorAdapter. A row of MXNet's sparse arrays occurs once, so rows are always added up."""
        rows, at = np.unique(parts.indices.asnumpy().reshape(-1), return_inverse=True)
        values = parts.values.asnumpy()
        total = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        np.add.at(total, at.reshape(-1), values)
        return mx.nd.sparse.row_sparse_array((total, rows), shape=tuple(shape), dtype=values.dtype)

    def to_dense(self, tensor: Tensor) -> Tensor:
        return tensor.tostype("default")

    def sparse_dimensions(self, tensor: Tensor) -> int:
        return 1

    def to_sparse(self, tensor: Tensor, dimensions: int) -> Tensor:
        return tensor.tostype("row_sparse")

    # ---- parameters ----------------------------------------------------------------------------------

    def values(self, parameter: Any) -> Tensor:
        return _only(parameter, parameter.list_data())

    def trainable(self, parameter: Any) -> bool:
        return bool(parameter.grad_req != "null")

    def gradient(self, parameter: Any, /) -> Tensor | None:
        return _only(parameter, parameter.list_grad()) if self.trainable(parameter) else None

    def set_gradient(self, parameter: Any, gradient: Tensor | None) -> None:
        if gradient is None:
            parameter.zero_grad()
        else:
            gradient.copyto(self.gradient(parameter))

    def zero_gradient(self, parameter: Any) -> Tensor:
        parameter.zero_grad()
        return self.gradient(parameter)

    def listen(self, parameter: Any, computed: Callable[[], None]) -> None:
        _listeners[id(parameter)] = computed

    def stop_listening(self, parameter: Any) -> None:
        _listeners.pop(id(parameter), None)

    def computed(self, parameter: Any) -> None:
        """Call the listeners of the parameter."""
        if listener := _listeners.get(id(parameter)):
            listener()

    # ---- a gradient's memory from step to step -------------------------------------------------------

    def in_memory_order(self, tensor: Tensor) -> tuple[Tensor, str]:
        return self.contiguous(tensor), ""

    def layout(self, tensor: Tensor) -> Hashable | None:
        if self.is_sparse(tensor) or self.on_device(tensor):
            return None
        return tensor.dtype, tensor.shape

    def address(self, tensor: Tensor, /) -> int:
        check_call(_LIB.MXNDArrayWaitToWrite(tensor.handle))  # for readers, too: the memory may be overwritten
        pointer = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(pointer)))
        return pointer.value or 0

    def version(self, tensor: Tensor, /) -> int:
        return 0  # MXNet's is not in its interface


def _only(parameter: Any, tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) != 1:
        raise errors.UnsupportedError(
            f"parameter {parameter.name} is on {len(tensors)} devices: one process drives one; give one context"
        )
    return tensors[0]


ADAPTER = MxnetAdapter()
_: ParameterAdapter[Any, Tensor] = ADAPTER  # a type checker compares the methods
