# SPDX-License-Identifier: Apache-2.0
"""Compression of tensors between ranks.

Horovod converts a tensor before the operation and its result after it. The library can instead convert only the data
between nodes (hpccoll.compression). The compressors here use that if possible; otherwise, and for a user's compressors,
tensors are converted before and after, as in Horovod.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from hpccoll import compression, errors
from hpccoll.frontend.adapter import TensorAdapter, is_floating

__all__ = [
    "Compressor", "Compressors", "NoneCompressor", "Packed", "check_compressor", "own_wire", "packed", "wire_for",
]  # fmt: skip


class Compressor(Protocol):
    """Converts tensors before an operation, and results after it. A class with static methods will do."""

    def compress(self, tensor: Any, /) -> tuple[Any, Any]:
        """Return the tensor to send, and a context for decompress()."""

    def decompress(self, tensor: Any, ctx: Any, /) -> Any:
        """Convert a result to the caller's dtype."""


class NoneCompressor:
    """No compression. Derive your compressors from it."""

    wire: compression.Compression | None = None
    """The library's own conversion that does the same for float32 and float64; None: there is none."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """See Compressor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """See Compressor."""
        del ctx
        return tensor


class Compressors:
    """The compressors of one framework, which are classes, by Horovod's names."""

    def __init__(self, adapter: TensorAdapter[Any]) -> None:
        self.none = NoneCompressor
        self.fp16 = _casting(adapter, "FP16Compressor", compression.FP16)
        self.bf16 = _casting(adapter, "BF16Compressor", compression.BF16)


def _casting(adapter: TensorAdapter[Any], name: str, narrow: compression.Compression) -> type[NoneCompressor]:
    """Make a compressor that casts floating-point values to a narrower dtype."""

    class CastCompressor(NoneCompressor):
        wire = narrow

        @staticmethod
        def compress(tensor: Any) -> tuple[Any, str]:
            own = adapter.dtype(tensor)
            return (adapter.cast(tensor, narrow.name) if is_floating(own) else tensor), own

        @staticmethod
        def decompress(tensor: Any, ctx: str) -> Any:
            return adapter.cast(tensor, ctx)

    CastCompressor.__name__ = CastCompressor.__qualname__ = name
    CastCompressor.__doc__ = f"Floating-point values travel as {narrow.name}."
    return CastCompressor


def wire_for(compressor: Compressor, *dtypes: str) -> compression.Compression | None:
    """Return the library's conversion that is equivalent to the compressor for tensors of these dtypes, if any."""
    wire = own_wire(compressor)
    return wire if wire is not None and all(dtype in ("float32", "float64") for dtype in dtypes) else None


class Packed(NamedTuple):
    """Tensors as they are sent."""

    tensors: list[Any]
    wire: compression.Compression | None
    """The library's own conversion of them, if that does the same."""
    unpack: Callable[[Sequence[Any]], list[Any]]
    """Makes results in the caller's dtypes of what was received."""


def packed(compressor: Compressor, tensors: Sequence[Any], dtype_of: Callable[[Any], str]) -> Packed:
    """Compress tensors, or say how the library does it.

    :param dtype_of: returns a tensor's dtype
    """
    wire = wire_for(compressor, *map(dtype_of, tensors))
    if compressor is NoneCompressor or wire is not None:
        return Packed(list(tensors), wire, list)
    pairs = [compressor.compress(tensor) for tensor in tensors]
    return Packed(
        [sent for sent, _ in pairs],
        None,
        lambda results: [compressor.decompress(x, context) for x, (_, context) in zip(results, pairs, strict=True)],
    )


def own_wire(compressor: Compressor) -> compression.Compression | None:
    """Return the library's equivalent conversion, if any; not that of a base class, whose methods may differ."""
    wire: compression.Compression | None = getattr(compressor, "__dict__", {}).get("wire")
    return wire


def check_compressor(compressor: Any) -> None:
    """Check the argument `compression` of a call.

    :raises InvalidArgumentError: (a ValueError) it cannot compress and decompress
    """
    if not all(callable(getattr(compressor, method, None)) for method in ("compress", "decompress")):
        raise errors.InvalidArgumentError(
            f"compression is {compressor!r}: use Compression.none, Compression.fp16, Compression.bf16, or a class with "
            "compress() and decompress()"
        )
