# SPDX-License-Identifier: Apache-2.0
"""What tensors travel as.

Horovod converts a tensor before the operation and its result after it. The library converts what leaves a node
(hpccoll.compression): that is what the compressors here ask for where they can. Where they cannot, and for compressors
of your own, Horovod's way is gone.
"""

from __future__ import annotations

from typing import Any

import torch

from hpccoll import compression

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor", "on_the_wire"]


class Compressor:
    """To be derived from: converts tensors before an operation, and results after it."""

    wire: compression.Compression | None = None
    """The library's own conversion that does the same for float32 and float64."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return what travels, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return a result as the caller wants it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """See Compressor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """See Compressor."""
        del ctx
        return tensor


def _narrowed(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.dtype]:
    return (tensor.to(dtype) if tensor.is_floating_point() else tensor), tensor.dtype


class FP16Compressor(Compressor):
    """Floating-point values travel as float16."""

    wire = compression.FP16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """See Compressor."""
        return _narrowed(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """See Compressor."""
        return tensor.to(ctx)


class BF16Compressor(Compressor):
    """Floating-point values travel as bfloat16."""

    wire = compression.BF16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """See Compressor."""
        return _narrowed(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """See Compressor."""
        return tensor.to(ctx)


class Compression:
    """The compressors by name."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def on_the_wire(compressor: Any, *tensors: torch.Tensor) -> compression.Compression | None:
    """The library's conversion for `tensors`, if it knows one that does what the compressor does."""
    wire: compression.Compression | None = getattr(compressor, "wire", None)
    fits = wire is not None and all(tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
    return wire if fits else None
