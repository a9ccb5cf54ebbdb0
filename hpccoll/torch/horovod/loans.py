# SPDX-License-Identifier: Apache-2.0
"""The memory of gradients, lent to the library while they are reduced.

A gradient mostly lies in memory as it did in the step before, at another address. So what the library calls that is
worked out once and compared afterwards.
"""

from __future__ import annotations

from typing import Any

import torch

from hpccoll import errors
from hpccoll._core import Buffer
from hpccoll.torch.tensors import buffer, dense, overwritten

__all__ = ["Lender", "Loan"]


class Lender:
    """Lends the memory of one parameter's gradient, step after step."""

    __slots__ = (
        "_dtype", "_model", "_shape", "_stride", "compressor", "name", "narrows", "order", "parameter"
    )  # fmt: skip

    def __init__(self, parameter: torch.Tensor, name: str, compressor: Any) -> None:
        """Nothing is lent yet.

        :param name: of the parameter, for errors
        :param compressor: None, or has compress(tensor) -> (tensor, context) and decompress(tensor, context)
        """
        self.parameter, self.name, self.compressor = parameter, name, compressor
        self._model: Buffer | None = None  # the last Buffer without its memory, if the next may be like it
        self.narrows = False
        """Of what was lent last: whether it is float32 or float64, which may travel as something narrower."""
        self.order = ""
        """Likewise: what a request's name must say of the order in memory."""

    def lend(self, grad: torch.Tensor) -> Loan:
        """Lend the memory of `grad`, or of what it travels as.

        :raises UnsupportedError: the library knows no such memory
        """
        wire, context = (grad, None) if self.compressor is None else self.compressor.compress(grad)
        if self._model is not None and self._lies_as_before(wire):
            return Loan(self, grad, wire, context, wire, self._model.at(wire.data_ptr(), wire))
        try:
            lent, self.order = _without_gaps(wire)
            memory = buffer(lent)
        except errors.UnsupportedError as error:
            raise errors.UnsupportedError(f"the gradient of {self.name}: {error}") from None
        self._dtype, self._shape, self._stride = wire.dtype, wire.shape, wire.stride()
        self.narrows = wire.dtype in (torch.float32, torch.float64)
        as_it_is = lent.data_ptr() == wire.data_ptr() and wire.is_cpu and not wire.is_complex()
        self._model = memory.at(0, None) if as_it_is else None
        return Loan(self, grad, wire, context, lent, memory)

    def _lies_as_before(self, x: torch.Tensor) -> bool:
        return (
            x.dtype is self._dtype
            and x.layout is torch.strided
            and x.is_cpu
            and x.shape == self._shape
            and x.stride() == self._stride
            and not x.is_neg()
        )


class Loan:
    """The memory of a gradient until its reduction is finished."""

    __slots__ = ("_context", "_grad", "_lender", "_lent", "_version", "_wire", "memory")

    def __init__(
        self,
        lender: Lender,
        grad: torch.Tensor,
        wire: torch.Tensor,
        context: Any,
        lent: torch.Tensor,
        memory: Buffer,
    ) -> None:
        self._lender, self._grad, self._wire, self._context, self._lent = lender, grad, wire, context, lent
        self.memory = memory
        self._version = grad._version  # noqa: SLF001 - torch's way to tell whether somebody wrote

    def give_back(self) -> None:
        """Put the result into the gradient, which nobody may have touched meanwhile."""
        grad, lender = self._grad, self._lender
        if lender.parameter.grad is not grad or grad._version != self._version:  # noqa: SLF001
            raise AssertionError(
                f"the gradient of {lender.name} was changed while it was being reduced: call "
                "optimizer.synchronize() first, then change gradients, then call step() inside of "
                "optimizer.skip_synchronize()"
            )
        if self._lent is not self._wire and self._lent.data_ptr() != self._wire.data_ptr():
            self._wire.copy_(self._lent)
        if lender.compressor is not None:
            result = lender.compressor.decompress(self._wire, self._context)
            if result is not grad:
                grad.copy_(result)
        overwritten(grad)


def _without_gaps(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Return a contiguous tensor over the memory of `x`, or over a copy, and what a name must say of its order.

    A gradient in another order (channels_last) is reduced where it lies; that only works if all ranks have it in the
    same order, so the order is part of the name.
    """
    if x.layout is torch.strided and not x.is_contiguous():
        order = sorted(range(x.dim()), key=x.stride, reverse=True)
        permuted = x.permute(order)
        if permuted.is_contiguous():
            return dense(permuted), f", dimensions {order}"
    return dense(x), ""
