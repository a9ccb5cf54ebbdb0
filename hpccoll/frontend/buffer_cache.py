# SPDX-License-Identifier: Apache-2.0
"""Buffers of gradients that are made once and not in every step.

A gradient usually has the same layout as in the step before, at another address. So its Buffer is made once, and moved
to the new address as long as the layout stays the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from hpccoll import errors
from hpccoll._core import Buffer
from hpccoll.frontend.adapter import ParameterAdapter
from hpccoll.frontend.compression import Compressor

__all__ = ["BufferCache", "GradientBuffer"]

P = TypeVar("P")
T = TypeVar("T")


class BufferCache(Generic[P, T]):
    """Gives the Buffer of one parameter's gradient, step after step."""

    __slots__ = ("_layout", "_model", "adapter", "compressor", "name", "narrows", "parameter", "usual_order")

    def __init__(self, adapter: ParameterAdapter[P, T], parameter: P, name: str, compressor: Compressor | None) -> None:
        """
        :param name: the parameter's name, for errors
        :param compressor: converts each gradient before and after its reduction; None: no conversion
        """  # noqa: D205, D212
        self.adapter, self.parameter, self.name, self.compressor = adapter, parameter, name, compressor
        self._layout: Hashable | None = None
        self._model: Buffer | None = None  # the last Buffer, without memory, if it may be reused
        self.narrows = False
        """Whether the last gradient was float32 or float64, which the library may narrow between nodes."""
        self.usual_order = False
        """Whether gradients are reduced in the usual order of their dimensions, wherever they lie."""

    def use_usual_order(self) -> None:
        """Reduce in the usual order of dimensions from now on, because the ranks' orders differ."""
        self.usual_order, self._layout, self._model = True, None, None

    def again(self, gradient: T) -> GradientBuffer[P, T] | None:
        """Return the gradient's buffer if it differs from the last one only in its address; else None."""
        model = self._model
        if model is None or self.compressor is not None or self.adapter.layout(gradient) != self._layout:
            return None
        memory = model.at(self.adapter.address(gradient), gradient)
        return GradientBuffer(self, gradient, gradient, None, gradient, memory)

    def describe(self, gradient: T) -> GradientBuffer[P, T]:
        """Return the buffer of a dense gradient, or of its compressed form.

        :raises UnsupportedError: the library does not know the dtype, or cannot move the memory
        """
        adapter = self.adapter
        sent, context = (gradient, None) if self.compressor is None else self.compressor.compress(gradient)
        layout = adapter.layout(sent)
        if self._model is not None and layout == self._layout:
            memory = self._model.at(adapter.address(sent), sent)
            return GradientBuffer(self, gradient, sent, context, sent, memory)
        try:
            lying, order = (adapter.contiguous(sent), "") if self.usual_order else adapter.in_memory_order(sent)
            memory = adapter.buffer(lying)
        except errors.UnsupportedError as error:
            raise errors.UnsupportedError(f"the gradient of {self.name}: {error}") from None
        if order:
            memory.of(order)
        self.narrows = adapter.dtype(sent) in ("float32", "float64")
        self._layout = layout
        as_it_is = layout is not None and adapter.address(lying) == adapter.address(sent)
        self._model = memory.at(0, None) if as_it_is else None
        return GradientBuffer(self, gradient, sent, context, lying, memory)


class GradientBuffer(Generic[P, T]):
    """The memory of a gradient until its reduction is finished."""

    __slots__ = ("_cache", "_context", "_gradient", "_lying", "_sent", "_version", "memory")

    def __init__(self, cache: BufferCache[P, T], gradient: T, sent: T, context: Any, lying: T, memory: Buffer) -> None:
        """
        :param sent: the tensor that is reduced; `context`: for the compressor's decompress()
        :param lying: `sent` in its order in memory, or a contiguous copy of it
        :param memory: the Buffer of `lying`
        """  # noqa: D205, D212
        self._cache, self._gradient, self._sent, self._context, self._lying = (
            cache,
            gradient,
            sent,
            context,
            lying,
        )
        self.memory = memory
        self._version = cache.adapter.version(gradient)

    def finish(self) -> None:
        """Put the result into the gradient, after the reduction.

        :raises AssertionError: the gradient was changed or replaced meanwhile
        """
        gradient, cache = self._gradient, self._cache
        adapter = cache.adapter
        if adapter.gradient(cache.parameter) is not gradient or adapter.version(gradient) != self._version:
            raise AssertionError(
                f"the gradient of {cache.name} was changed while it was being reduced: call "
                "optimizer.synchronize() first, then change gradients, then call step() inside of "
                "optimizer.skip_synchronize()"
            )
        sent, lying = self._sent, self._lying
        if lying is not sent and adapter.address(lying) != adapter.address(sent):
            adapter.overwrite(sent, lying)
        if cache.compressor is not None:
            result = cache.compressor.decompress(sent, self._context)
            if result is not gradient:
                adapter.overwrite(gradient, result)
        adapter.changed(gradient)
