# SPDX-License-Identifier: Apache-2.0
"""The interface between this package and a framework: one object with the methods of a protocol below.

Operations need a TensorAdapter; gradients need a ParameterAdapter. Tensors and parameters are opaque here: only the
adapter looks into them. Dtypes are named as in `hpccoll.arrays.NAMES` ("float32", "bfloat16", ...); a dtype that the
library does not know has its framework's name.

Make the methods cheap that are called once per gradient and step: gradient, version, layout, address, changed.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from hpccoll._core import Buffer

__all__ = ["ParameterAdapter", "SparseParts", "TensorAdapter", "is_floating", "is_inexact"]

T = TypeVar("T")
P = TypeVar("P", contravariant=True)

_FLOATING = {"float16", "bfloat16", "float32", "float64"}
_COMPLEX = {"complex64", "complex128"}


def is_floating(dtype: str) -> bool:
    """Whether a dtype of this name is a real floating-point type."""
    return dtype in _FLOATING


def is_inexact(dtype: str) -> bool:
    """Whether a dtype of this name is a floating-point type, real or complex."""
    return dtype in _FLOATING or dtype in _COMPLEX


class SparseParts(NamedTuple, Generic[T]):
    """A sparse tensor with n entries."""

    indices: T
    """Where the entries lie: int64, of shape (n, sparse dimensions)."""
    values: T
    """Their values, of shape (n, dense dimensions ...)."""


class TensorAdapter(Protocol[T]):
    """The methods that the operations need, for a framework's tensors of type T."""

    # ---- facts ---------------------------------------------------------------------------------------

    def dtype(self, tensor: T) -> str:
        """Return the name of the tensor's dtype."""

    def shape(self, tensor: T) -> tuple[int, ...]:
        """Return the tensor's shape."""

    def on_device(self, tensor: T) -> bool:
        """Whether the values lie in the memory of a device that the host cannot read."""

    # ---- memory --------------------------------------------------------------------------------------

    def contiguous(self, tensor: T) -> T:
        """Return the values in contiguous memory: `tensor` itself if it is contiguous, else a copy.

        :raises InvalidArgumentError: this is no tensor
        :raises UnsupportedError: it is sparse, or its memory is not the host's or a served device's
        """

    def buffer(self, tensor: T, shape: Sequence[int] | None = None) -> Buffer:
        """Describe the memory of a contiguous tensor to the library, without a copy.

        The Buffer keeps the memory alive. One of device memory names the stream in which the framework currently works:
        the library runs its work after that stream's (see hpccoll.device_arrays).

        :param shape: the shape for the library; default: the tensor's shape
        :raises UnsupportedError: the library does not know the dtype
        """

    def empty(self, like: T, shape: Sequence[int]) -> T:
        """Make a new contiguous tensor with the dtype and on the device of `like`; its values are undefined."""

    def from_bytes(self, received: Any, like: T, shape: Sequence[int]) -> T:
        """Make a tensor over the received bytes of a gather, with the dtype of `like`, without a copy.

        :param received: 1-d uint8 array; for device memory whatever hpccoll.device_arrays makes for this framework
        """

    def to_numpy(self, tensor: T) -> np.ndarray:
        """Return the values of a tensor in host memory as a NumPy array; it may share the memory.

        Where NumPy has no such dtype, the array holds the same bytes as integers of the same size.
        """

    def from_numpy(self, array: np.ndarray, dtype: str | None = None) -> T:
        """Make a tensor of a NumPy array; it may share the array's memory.

        :param dtype: the dtype of the tensor, if the array holds its bytes as to_numpy() does; default: the array's
            dtype
        """

    # ---- values --------------------------------------------------------------------------------------

    def cast(self, tensor: T, dtype: str) -> T:
        """Return the values in another dtype; `tensor` itself if it has that dtype."""

    def scale(self, tensor: T, factor: float) -> T:
        """Return a new tensor of the same dtype: the values times `factor`, integers cut off towards zero."""

    def divide(self, tensor: T, divisor: float) -> T:
        """Return a new tensor: floating-point values divided by `divisor`."""

    def add(self, x: T, y: T, factor: float) -> T:
        """Return a new tensor: x + factor * y."""

    def overwrite(self, target: T, source: T) -> None:
        """Copy the values of `source` into `target`. Automatic differentiation does not record it."""

    def changed(self, tensor: T) -> None:
        """Tell the framework that the library has written into the memory of `tensor`."""

    # ---- sparse tensors ------------------------------------------------------------------------------

    def is_sparse(self, tensor: T) -> bool:
        """Whether the tensor stores indices and values of some entries only."""

    def sparse_parts(self, tensor: T, *, coalesce: bool) -> SparseParts[T]:
        """Return the entries of a sparse tensor.

        :param coalesce: add up entries with equal indices first
        """

    def from_sparse(self, parts: SparseParts[T], shape: Sequence[int], *, coalesce: bool) -> T:
        """Make a sparse tensor of entries whose indices may occur more than once.

        :param coalesce: add up entries with equal indices
        """

    def to_dense(self, tensor: T) -> T:
        """Make a dense tensor of a sparse one."""

    def sparse_dimensions(self, tensor: T) -> int:
        """Return how many of a sparse tensor's dimensions its indices have; they are the first ones."""

    def to_sparse(self, tensor: T, dimensions: int) -> T:
        """Make a sparse tensor of a dense one, with `dimensions` in its indices and no entries of zeros alone."""


class ParameterAdapter(TensorAdapter[T], Protocol[P, T]):
    """The further methods that gradients need: parameters of type P, each with values and a gradient of type T."""

    parameter_type: type
    """The class of a parameter, for checks of arguments and for error messages."""

    def values(self, parameter: P) -> T:
        """Return the parameter's values, for reads and writes that automatic differentiation does not record."""

    def trainable(self, parameter: P) -> bool:
        """Whether the parameter needs a gradient."""

    def gradient(self, parameter: P, /) -> T | None:
        """Return the parameter's gradient; None: it has none."""

    def set_gradient(self, parameter: P, gradient: T | None) -> None:
        """Replace the parameter's gradient."""

    def zero_gradient(self, parameter: P) -> T:
        """Give the parameter a dense gradient of zeros, and return it."""

    def listen(self, parameter: P, computed: Callable[[], None]) -> None:
        """Call `computed` from now on whenever a backward pass has added to the parameter's gradient.

        :param computed: may be called in any thread; its exceptions must reach the caller of the backward pass
        """

    def stop_listening(self, parameter: P) -> None:
        """Undo every listen() of this parameter, whoever called it."""

    # ---- a gradient's memory from step to step -------------------------------------------------------

    def in_memory_order(self, tensor: T) -> tuple[T, str]:
        """Return a contiguous tensor over the tensor's own memory where some order of its dimensions allows it.

        :returns: that tensor (or what contiguous() gives), and a text that describes the order, "" for the usual one.
            All ranks compare it, because they must use the same order
        """

    def layout(self, tensor: T) -> Hashable | None:
        """Return a key of everything, except the address, on which buffer(in_memory_order(tensor)) depends.

        :returns: equal values for tensors whose Buffers differ only in the address; None: a new Buffer is needed
            (device memory, sparse tensors, tensors that need a copy for another reason than their strides)
        """

    def address(self, tensor: T, /) -> int:
        """Return the address of the tensor's first element."""

    def version(self, tensor: T, /) -> int:
        """Return a number that grows with each write into the tensor; constant if the framework does not count."""
