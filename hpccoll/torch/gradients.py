# SPDX-License-Identifier: Apache-2.0
"""The gradients of a torch optimizer's parameters: their memory as arrays, and the hooks that say when one is there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from hpccoll import collectives, errors
from hpccoll.collectives import Handle
from hpccoll.gradients import Finish, Item, Piece, Recipe, Reducer, SparseLayout
from hpccoll.torch.tensors import buffer, dense, overwritten

__all__ = ["Gradients"]

_hooks: Any = WeakTensorKeyDictionary()
"""The hook of each parameter: if an optimizer is wrapped twice, the second one listens."""


class Gradients:
    """What is reduced for one optimizer, and how. A parameter is known by its place in `parameters`."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        names: Sequence[str],
        items: Sequence[Item],
        recipe: Recipe,
        passes: int,
        compressor: Any = None,
        sparse_as_dense: bool = False,
    ) -> None:
        """Listen to the parameters.

        :param compressor: has compress(tensor) -> (tensor, context) and decompress(tensor, context)
        :param sparse_as_dense: make sparse gradients dense before they are reduced
        """
        self.parameters = list(parameters)
        self.names = list(names)
        self.recipe = recipe
        self._compressor = compressor
        self._sparse_as_dense = sparse_as_dense
        self._hooked: set[int] = set()
        self._layouts: dict[int, SparseLayout] = {}  # of the gradients that were sparse
        self._retried: set[int] = set()
        self.reducer = Reducer(items, passes, self._start)
        for parameter in self.parameters:
            if (earlier := _hooks.pop(parameter, None)) is not None:
                earlier.remove()
        self._hook_all()

    def add(self, parameters: Sequence[torch.Tensor], names: Sequence[str], items: Sequence[Item]) -> None:
        """Reduce the gradients of these parameters, too."""
        self.parameters += parameters
        self.names += names
        self.reducer.add(items)
        self._hook_all()

    def synchronize(self) -> None:
        """Wait until every parameter's gradient is reduced; who has none brings zeros. See Reducer.synchronize."""
        self._hook_all()
        self.reducer.synchronize(self._wanted)

    def _wanted(self, member: int) -> bool:
        parameter = self.parameters[member]
        return parameter.requires_grad or parameter.grad is not None

    # ---- hooks ---------------------------------------------------------------------------------------

    def _hook_all(self) -> None:
        """Listen to every parameter that wants a gradient by now."""
        for member, parameter in enumerate(self.parameters):
            if member not in self._hooked and parameter.requires_grad:
                self._hooked.add(member)
                listen: Any = parameter.register_post_accumulate_grad_hook
                _hooks[parameter] = listen(_hook(weakref.ref(self), member))

    # ---- one item --------------------------------------------------------------------------------------

    def _start(self, item: Item) -> Finish:
        if len(item.members) == 1:
            return self._start_one(item, item.members[0])
        loans = [
            _Loan(self.parameters[m], self.names[m], self._dense(m), self._compressor) for m in item.members
        ]
        layout = "".join(loan.layout for loan in loans)
        handles = self.recipe.start(item.name + layout, [loan.piece for loan in loans])

        def finish() -> None:
            for handle in handles:
                handle.wait()
            for loan in loans:
                loan.give_back()

        return finish

    def _start_one(self, item: Item, member: int) -> Finish:
        parameter = self.parameters[member]
        grad = parameter.grad
        absent = grad is None
        if (grad is not None and grad.is_sparse and not self._sparse_as_dense) or (
            absent and member in self._layouts
        ):
            return self._retrying(item, member, absent, self._start_sparse(item, member, grad))
        loan = _Loan(parameter, self.names[member], self._dense(member), self._compressor)
        handles = self.recipe.start(item.name + loan.layout, [loan.piece])

        def finish() -> None:
            handles[0].wait()
            loan.give_back()

        return self._retrying(item, member, absent, finish)

    def _dense(self, member: int) -> torch.Tensor:
        """The gradient; zeros where there is none, as another rank may have one."""
        parameter = self.parameters[member]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        elif parameter.grad.is_sparse:
            if not self._sparse_as_dense:
                raise errors.UnsupportedError(
                    f"the gradient of {self.names[member]} is sparse, and it is in a group: take it out of groups, "
                    "or use sparse_as_dense=True"
                )
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad

    # ---- sparse gradients --------------------------------------------------------------------------------

    def _start_sparse(self, item: Item, member: int, grad: torch.Tensor | None) -> Finish:
        parameter, recipe = self.parameters[member], self.recipe
        if recipe.op not in (collectives.SUM, collectives.AVERAGE):
            raise errors.UnsupportedError(
                f"the gradient of {self.names[member]} is sparse: Sum or Average only"
            )
        if parameter.is_cuda:
            raise errors.UnsupportedError(
                f"the gradient of {self.names[member]} is sparse and in device memory: use sparse_as_dense=True"
            )
        if grad is None:
            layout = self._layouts[member]
            rows = layout.nothing()
        else:
            grad = grad.coalesce()
            values = grad.values().view(_bits(parameter)).numpy()
            layout = SparseLayout(grad.sparse_dim(), values.shape[1:], values.dtype)
            rows = layout.pack(grad.indices().numpy(), values)
        handle: Handle = recipe.world.core.allgather(rows, item.name, None, False)

        def finish() -> None:
            indices, values = map(torch.from_numpy, layout.unpack(handle.wait()))
            values = values.view(parameter.dtype)
            if recipe.op == collectives.AVERAGE:
                values = values / recipe.world.size
            parameter.grad = torch.sparse_coo_tensor(
                indices, values, parameter.shape, check_invariants=False
            ).coalesce()
            self._layouts[member] = layout

        return finish

    def _retrying(self, item: Item, member: int, absent: bool, finish: Finish) -> Finish:
        """Let every rank try once more after a first mismatch: all ranks get the same.

        So a rank without a gradient learns that the gradient is sparse elsewhere.
        """

        def finish_or_retry() -> Finish | None:
            try:
                finish()
            except errors.MismatchError:
                if member in self._retried:
                    raise
                self._retried.add(member)
                return self._start_again(item, member, absent)
            return None

        return finish_or_retry

    def _start_again(self, item: Item, member: int, absent: bool) -> Finish:
        if absent:
            parameter = self.parameters[member]
            parameter.grad = None
            dtype = torch.empty(0, dtype=_bits(parameter)).numpy().dtype
            self._layouts[member] = SparseLayout(1, tuple(parameter.shape[1:]), dtype)
        return self._start_one(item, member)


def _hook(owner: weakref.ref[Gradients], member: int) -> Callable[[torch.Tensor], None]:
    def computed(parameter: torch.Tensor) -> None:
        gradients = owner()
        if gradients is not None:  # else the optimizer is gone and the model stays
            assert parameter.grad is None or not parameter.grad.requires_grad
            gradients.reducer.computed(member)

    return computed


def _bits(x: torch.Tensor) -> torch.dtype:
    """The dtype in which NumPy can hold the values of `x`."""
    return torch.int16 if x.dtype == torch.bfloat16 else x.dtype


class _Loan:
    """A gradient's memory, lent to the library until its reduction is finished."""

    __slots__ = (
        "_compressor",
        "_context",
        "_grad",
        "_lent",
        "_name",
        "_parameter",
        "_version",
        "_wire",
        "layout",
        "piece",
    )

    def __init__(self, parameter: torch.Tensor, name: str, grad: torch.Tensor, compressor: Any) -> None:
        self._parameter, self._name, self._grad, self._compressor = parameter, name, grad, compressor
        self._wire: torch.Tensor = grad
        self._context: Any = None
        if compressor is not None:
            self._wire, self._context = compressor.compress(grad)
        try:
            self._lent, self.layout = _without_gaps(self._wire)
            self.piece = Piece(buffer(self._lent), self._lent.dtype in (torch.float32, torch.float64))
        except errors.UnsupportedError as error:
            raise errors.UnsupportedError(f"the gradient of {name}: {error}") from None
        self._version = grad._version  # noqa: SLF001 - torch's way to tell whether somebody wrote

    def give_back(self) -> None:
        """Put the result into the gradient, which nobody may have touched meanwhile."""
        grad = self._grad
        if self._parameter.grad is not grad or grad._version != self._version:  # noqa: SLF001
            raise AssertionError(
                f"the gradient of {self._name} was changed while it was being reduced: call "
                "optimizer.synchronize() first, then change gradients, then call step() inside of "
                "optimizer.skip_synchronize()"
            )
        if self._lent.data_ptr() != self._wire.data_ptr():
            self._wire.copy_(self._lent)
        if self._compressor is not None:
            result = self._compressor.decompress(self._wire, self._context)
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
