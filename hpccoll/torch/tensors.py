# SPDX-License-Identifier: Apache-2.0
"""A tensor as the library sees it (an address, a dtype, a shape), and bytes that were received as a tensor again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hpccoll import _core, device_arrays, errors

__all__ = ["buffer", "dense", "from_bytes", "overwritten", "values"]

_CODES: dict[torch.dtype, int] = {
    getattr(torch, name): code for code, name in enumerate(_core.DTYPES) if hasattr(torch, name)
}


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor in contiguous memory: its own where they lie so, else a copy's.

    :raises UnsupportedError: the tensor is sparse, or neither in host memory nor in a GPU's
    """
    if not isinstance(tensor, torch.Tensor):
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


def buffer(tensor: torch.Tensor, shape: Sequence[int] | None = None) -> _core.Buffer:
    """The memory of a tensor that dense() has given, without a copy.

    :param shape: what the library takes it for; default: its own
    :raises UnsupportedError: its dtype is none of the library's
    """
    code = _CODES.get(tensor.dtype)
    if code is None:
        raise errors.UnsupportedError(
            f"dtype {tensor.dtype} is not supported; one of: {', '.join(_core.DTYPES)}"
        )
    if tensor.is_cuda:
        return _core.Buffer.lent(device_arrays.torch_library().lend(tensor, 0), shape)
    return _core.Buffer(tensor.data_ptr(), code, tensor.shape if shape is None else shape, tensor)


def from_bytes(received: np.ndarray | torch.Tensor, rows: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """What a gather has received as a tensor of the dtype and row shape of `like`; no copy.

    :param received: bytes (1-d uint8); of device memory a tensor already
    :param rows: how many came from each rank
    """
    shape = (int(rows.sum()), *like.shape[1:])
    if len(received) == 0:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return values(received, like.dtype).view(shape)


def values(received: np.ndarray | torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a gather has received as a flat tensor of `dtype`; no copy."""
    there = received if isinstance(received, torch.Tensor) else torch.from_numpy(received)
    return there.reshape(-1).view(dtype)


def overwritten(tensor: torch.Tensor) -> None:
    """Tell autograd that the memory of `tensor` has changed."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
