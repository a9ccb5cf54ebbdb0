# SPDX-License-Identifier: Apache-2.0
"""PyTorch's adapter for hpccoll.frontend."""

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from hpccoll import arrays, device_arrays, errors
from hpccoll._core import Buffer
from hpccoll.frontend.adapter import ParameterAdapter, SparseParts

__all__ = ["ADAPTER", "TorchAdapter"]

Tensor = torch.Tensor

_CODES: dict[torch.dtype, int] = device_arrays.torch_codes()
_DTYPES = {arrays.NAMES[code]: dtype for dtype, code in _CODES.items()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_AS_BITS = {torch.bfloat16: torch.int16}
"""Dtypes that NumPy does not have, and those of the same size that it has."""

_hooks: Any = WeakTensorKeyDictionary()
"""The hook of each parameter: if an optimizer is wrapped twice, the second wrapper listens."""


class TorchAdapter:
    """See hpccoll.frontend.adapter.ParameterAdapter; tensors and parameters are torch.Tensor."""

    parameter_type: type = torch.Tensor

    def __init__(self) -> None:
        # These are called for every gradient in every step, so they are C functions:
        self.gradient: Callable[[Tensor], Tensor | None] = operator.attrgetter("grad")
        self.version: Callable[[Tensor], int] = operator.attrgetter("_version")
        self.address: Callable[[Tensor], int] = Tensor.data_ptr

    # ---- facts ---------------------------------------------------------------------------------------

    def dtype(self, tensor: Tensor) -> str:
        return _NAMES.get(tensor.dtype) or str(tensor.dtype)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def on_device(self, tensor: Tensor) -> bool:
        return not tensor.is_cpu

    # ---- memory --------------------------------------------------------------------------------------

    def contiguous(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise errors.InvalidArgumentError(f"a {type(tensor).__name__} is no tensor")
        if not (tensor.is_cpu or tensor.is_cuda):
            raise errors.UnsupportedError(
                f"a tensor on device {tensor.device}, whose memory hpccoll cannot move: copy it to the host first"
            )
        if tensor.layout is not torch.strided:
            raise errors.UnsupportedError(
                f"a tensor of layout {tensor.layout}: use sparse_allreduce_async() or tensor.to_dense()"
            )
        if tensor.is_complex() or tensor.is_neg():
            tensor = tensor.detach().resolve_conj().resolve_neg()
        return tensor if tensor.is_contiguous() else tensor.detach().contiguous()

    def buffer(self, tensor: Tensor, shape: Sequence[int] | None = None) -> Buffer:
        code = _CODES.get(tensor.dtype)
        if code is None:
            raise errors.UnsupportedError(f"dtype {tensor.dtype} is not supported; one of: {', '.join(arrays.NAMES)}")
        if tensor.is_cuda:
            return Buffer.lent(device_arrays.torch_library().describe(tensor, 0), shape)
        return Buffer(tensor.data_ptr(), code, tensor.shape if shape is None else shape, tensor)

    def empty(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)

    def from_bytes(self, received: Any, like: Tensor, shape: Sequence[int]) -> Tensor:
        """See TensorAdapter.

        :param received: a 1-d uint8 NumPy array; a tensor if it lies in device memory
        """
        if len(received) == 0:
            return self.empty(like, shape)
        flat = received if isinstance(received, Tensor) else torch.from_numpy(received)
        return flat.reshape(-1).view(like.dtype).view(tuple(shape))

    def to_numpy(self, tensor: Tensor) -> np.ndarray:
        array: np.ndarray = tensor.detach().view(_AS_BITS.get(tensor.dtype, tensor.dtype)).numpy()
        return array

    def from_numpy(self, array: np.ndarray, dtype: str | None = None) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if dtype is None else tensor.view(_DTYPES[dtype])

    # ---- values --------------------------------------------------------------------------------------

    def cast(self, tensor: Tensor, dtype: str) -> Tensor:
        return tensor.to(_DTYPES[dtype])

    def scale(self, tensor: Tensor, factor: float) -> Tensor:
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor.detach() * factor
        return (tensor.double() * factor).to(tensor.dtype)

    def divide(self, tensor: Tensor, divisor: float) -> Tensor:
        return tensor / divisor

    def add(self, x: Tensor, y: Tensor, factor: float) -> Tensor:
        return torch.add(x, y, alpha=factor)

    def overwrite(self, target: Tensor, source: Tensor) -> None:
        with torch.no_grad():
            target.copy_(source)

    def changed(self, tensor: Tensor) -> None:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)

    # ---- sparse tensors ------------------------------------------------------------------------------

    def is_sparse(self, tensor: Tensor) -> bool:
        return tensor.is_sparse

    def sparse_parts(self, tensor: Tensor, *, coalesce: bool) -> SparseParts[Tensor]:
        tensor = tensor.coalesce() if coalesce else tensor
        indices, values = tensor._indices(), tensor._values()  # noqa: SLF001 - indices() needs coalesced tensors
        return SparseParts(indices.t(), values)

    def from_sparse(self, parts: SparseParts[Tensor], shape: Sequence[int], *, coalesce: bool) -> Tensor:
        made = torch.sparse_coo_tensor(parts.indices.t(), parts.values, tuple(shape), check_invariants=False)
        return made.coalesce() if coalesce else made

    def to_dense(self, tensor: Tensor) -> Tensor:
        return tensor.to_dense()

    def sparse_dimensions(self, tensor: Tensor) -> int:
        return tensor.sparse_dim()

    def to_sparse(self, tensor: Tensor, dimensions: int) -> Tensor:
        return tensor.to_sparse(dimensions)

    # ---- parameters ----------------------------------------------------------------------------------

    def values(self, parameter: Tensor) -> Tensor:
        return parameter.detach()

    def trainable(self, parameter: Tensor) -> bool:
        return parameter.requires_grad

    def set_gradient(self, parameter: Tensor, gradient: Tensor | None) -> None:
        parameter.grad = gradient

    def zero_gradient(self, parameter: Tensor) -> Tensor:
        parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        return parameter.grad

    def listen(self, parameter: Tensor, computed: Callable[[], None]) -> None:
        def hook(parameter: Tensor) -> None:
            gradient = parameter.grad
            assert gradient is None or not gradient.requires_grad
            computed()

        register: Any = parameter.register_post_accumulate_grad_hook
        _hooks[parameter] = register(hook)

    def stop_listening(self, parameter: Tensor) -> None:
        if (earlier := _hooks.pop(parameter, None)) is not None:
            earlier.remove()

    # ---- a gradient's memory from step to step -------------------------------------------------------

    def in_memory_order(self, tensor: Tensor) -> tuple[Tensor, str]:
        """See ParameterAdapter: a gradient in another order (channels_last) is reduced in place."""
        if tensor.layout is torch.strided and not tensor.is_contiguous():
            order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
            permuted = tensor.permute(order)
            if permuted.is_contiguous():
                return self.contiguous(permuted), f"layout {order}"
        return self.contiguous(tensor), ""

    def layout(self, tensor: Tensor) -> Hashable | None:
        if tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_neg():
            return tensor.dtype, tensor.shape, tensor.stride()
        return None


ADAPTER: ParameterAdapter[Tensor, Tensor] = TorchAdapter()
