# SPDX-License-Identifier: Apache-2.0
"""A front end for a framework of one file: variables that own a NumPy array and its gradient, and plain SGD.

It shows all that a framework has to provide; the contract tests of this folder test it like PyTorch.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpccoll import arrays, errors
from hpccoll._core import Buffer
from hpccoll.frontend.adapter import ParameterAdapter, SparseParts
from hpccoll.frontend.compression import Compressor, Compressors, NoneCompressor
from hpccoll.frontend.deltas import Deltas
from hpccoll.frontend.parameters import Groups, distributed_gradients, names_of
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Adasum, Average, Reduction
from hpccoll.horovod.operations import Operations


@dataclass
class SparseArray:
    """Some entries of an array."""

    indices: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]

    def dense(self) -> np.ndarray:
        out = np.zeros(self.shape, self.values.dtype)
        np.add.at(out, tuple(self.indices.T), self.values)
        return out


Array = np.ndarray | SparseArray


@dataclass(eq=False)
class Variable:
    """A trained variable. A backward pass calls add_gradient()."""

    value: np.ndarray
    trainable: bool = True
    gradient: Array | None = None
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def add_gradient(self, gradient: np.ndarray) -> None:
        if self.gradient is None:
            self.gradient = np.array(gradient, self.value.dtype)
        else:
            self.gradient += gradient
        for listener in self.listeners:
            listener()


class NumpyAdapter:
    """See hpccoll.frontend.adapter.ParameterAdapter."""

    parameter_type: type = Variable

    def dtype(self, tensor: Array) -> str:
        return (tensor if isinstance(tensor, np.ndarray) else tensor.values).dtype.name

    def shape(self, tensor: Array) -> tuple[int, ...]:
        return tensor.shape

    def on_device(self, tensor: Array) -> bool:
        return False

    # ---- memory

    def contiguous(self, tensor: Array) -> np.ndarray:
        if isinstance(tensor, SparseArray):
            raise errors.UnsupportedError("a sparse array: use sparse_allreduce_async()")
        if not isinstance(tensor, np.ndarray):
            raise errors.InvalidArgumentError(f"a {type(tensor).__name__} is no array")
        return tensor if tensor.flags.c_contiguous else tensor.copy()

    def buffer(self, tensor: Array, shape: Sequence[int] | None = None) -> Buffer:
        assert isinstance(tensor, np.ndarray)
        code = arrays.dtype_code(tensor.dtype)
        return Buffer(self.address(tensor), code, tensor.shape if shape is None else shape, tensor)

    def empty(self, like: Array, shape: Sequence[int]) -> np.ndarray:
        return np.empty(shape, self.dtype(like))

    def from_bytes(self, received: Any, like: Array, shape: Sequence[int]) -> np.ndarray:
        values: np.ndarray = received.view(self.dtype(like)).reshape(shape)
        return values

    def to_numpy(self, tensor: Array) -> np.ndarray:
        return self.contiguous(tensor)

    def from_numpy(self, array: np.ndarray, dtype: str | None = None) -> np.ndarray:
        return array if dtype is None else array.view(dtype)

    # ---- values

    def cast(self, tensor: Array, dtype: str) -> np.ndarray:
        return self.contiguous(tensor).astype(dtype, copy=False)

    def scale(self, tensor: Array, factor: float) -> np.ndarray:
        x = self.contiguous(tensor)
        wide = x if x.dtype.kind in "fc" else x.astype(np.float64)
        return np.asarray(wide * factor).astype(x.dtype)

    def divide(self, tensor: Array, divisor: float) -> np.ndarray:
        return np.asarray(self.contiguous(tensor) / divisor)

    def add(self, x: Array, y: Array, factor: float) -> np.ndarray:
        return np.asarray(self.contiguous(x) + factor * self.contiguous(y))

    def overwrite(self, target: Array, source: Array) -> None:
        assert isinstance(target, np.ndarray)
        target[...] = source

    def changed(self, tensor: Array) -> None:
        pass

    # ---- sparse arrays

    def is_sparse(self, tensor: Array) -> bool:
        return isinstance(tensor, SparseArray)

    def sparse_parts(self, tensor: Array, *, coalesce: bool) -> SparseParts[Array]:
        assert isinstance(tensor, SparseArray)
        return SparseParts(tensor.indices, tensor.values)

    def from_sparse(self, parts: SparseParts[Array], shape: Sequence[int], *, coalesce: bool) -> SparseArray:
        return SparseArray(self.contiguous(parts.indices), self.contiguous(parts.values), tuple(shape))

    def to_dense(self, tensor: Array) -> np.ndarray:
        return tensor.dense() if isinstance(tensor, SparseArray) else tensor

    def sparse_dimensions(self, tensor: Array) -> int:
        assert isinstance(tensor, SparseArray)
        return tensor.indices.shape[1]

    def to_sparse(self, tensor: Array, dimensions: int) -> SparseArray:
        assert isinstance(tensor, np.ndarray)
        indices = np.argwhere(tensor.any(axis=tuple(range(dimensions, tensor.ndim))))
        return SparseArray(indices, tensor[tuple(indices.T)], tensor.shape)

    # ---- variables

    def values(self, parameter: Variable) -> np.ndarray:
        return parameter.value

    def trainable(self, parameter: Variable) -> bool:
        return parameter.trainable

    def gradient(self, parameter: Variable, /) -> Array | None:
        return parameter.gradient

    def set_gradient(self, parameter: Variable, gradient: Array | None) -> None:
        parameter.gradient = gradient

    def zero_gradient(self, parameter: Variable) -> np.ndarray:
        parameter.gradient = np.zeros_like(parameter.value)
        return parameter.gradient

    def listen(self, parameter: Variable, computed: Callable[[], None]) -> None:
        parameter.listeners.append(computed)

    def stop_listening(self, parameter: Variable) -> None:
        parameter.listeners.clear()

    def in_memory_order(self, tensor: Array) -> tuple[np.ndarray, str]:
        if isinstance(tensor, np.ndarray) and tensor.flags.f_contiguous and not tensor.flags.c_contiguous:
            return tensor.T, "layout [1, 0]"
        return self.contiguous(tensor), ""

    def layout(self, tensor: Array) -> Hashable | None:
        return (tensor.dtype, tensor.shape, tensor.strides) if isinstance(tensor, np.ndarray) else None

    def address(self, tensor: Array, /) -> int:
        return tensor.ctypes.data if isinstance(tensor, np.ndarray) else 0

    def version(self, tensor: Array, /) -> int:
        return 0  # NumPy does not count


ADAPTER: ParameterAdapter[Variable, Array] = NumpyAdapter()
OPERATIONS = Operations(ADAPTER)
COMPRESSION = Compressors(ADAPTER)


class DistributedSGD:
    """Gradient descent with gradients that are reduced over the ranks, or with Adasum of the changes."""

    def __init__(
        self,
        variables: Sequence[Variable],
        rate: float,
        named: Iterable[tuple[str, Variable]] | None = None,
        *,
        compression: Compressor = NoneCompressor,
        passes: int = 1,
        op: Reduction = Average,
        predivide: float = 1.0,
        groups: Groups[Variable] = None,
        sparse_as_dense: bool = False,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self.variables, self.rate, self.deltas, self.gradients = list(variables), rate, None, None
        if op is Adasum:
            names = names_of(ADAPTER, variables, named)
            self.deltas = Deltas(ADAPTER, variables, names, compression, process_set)
            return
        self.gradients = distributed_gradients(
            ADAPTER, variables, named, compression=compression, passes=passes, op=op, predivide=predivide,
            groups=groups, sparse_as_dense=sparse_as_dense, process_set=process_set,
        )  # fmt: skip

    def synchronize(self) -> None:
        if self.gradients is not None:
            self.gradients.synchronize()

    def step(self) -> None:
        if self.deltas is not None:
            with self.deltas.combined():
                self._descend()
        else:
            self.synchronize()
            self._descend()

    def _descend(self) -> None:
        for variable in self.variables:
            if variable.gradient is not None:
                variable.value -= self.rate * ADAPTER.to_numpy(ADAPTER.to_dense(variable.gradient))

    def zero_grad(self) -> None:
        for variable in self.variables:
            variable.gradient = None
