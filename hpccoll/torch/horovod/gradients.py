# SPDX-License-Identifier: Apache-2.0
"""The gradients of a torch optimizer's parameters: their memory as arrays, and the hooks that say when one is there."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from hpccoll import collectives, errors
from hpccoll.collectives import Handle
from hpccoll.gradients import Flight, Item, Piece, Recipe, Reducer, SparseLayout
from hpccoll.horovod.process_sets import ProcessSet, world_of
from hpccoll.torch.horovod.loans import Lender

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
        process_set: ProcessSet,
        passes: int,
        compressor: Any = None,
        sparse_as_dense: bool = False,
    ) -> None:
        """Listen to the parameters.

        :param process_set: whose World `recipe` has, and another one after shutdown() and init()
        :param compressor: has compress(tensor) -> (tensor, context) and decompress(tensor, context)
        :param sparse_as_dense: make sparse gradients dense before they are reduced
        """
        self.parameters = list(parameters)
        self.names = list(names)
        self.recipe, self._process_set = recipe, process_set
        self._compressor = compressor
        self._lenders = self._lenders_of(parameters, names)
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
        self._lenders += self._lenders_of(parameters, names)
        self.reducer.add(items)
        self._hook_all()

    def _lenders_of(self, parameters: Sequence[torch.Tensor], names: Sequence[str]) -> list[Lender]:
        return [
            Lender(parameter, name, self._compressor)
            for parameter, name in zip(parameters, names, strict=True)
        ]

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

    def _start(self, item: Item) -> Flight:
        try:
            return self._start_here(item)
        except errors.ShutDownError:
            world = world_of(self._process_set)
            if world is self.recipe.world:
                raise
            self.recipe = dataclasses.replace(self.recipe, world=world)
            return self._start_here(item)

    def _start_here(self, item: Item) -> Flight:
        if len(item.members) > 1:
            return self._start_group(item)
        member = item.members[0]
        grad = self.parameters[member].grad
        if (grad is None and member in self._layouts) or (
            grad is not None and grad.is_sparse and not self._sparse_as_dense
        ):
            return self._start_sparse(item, member, grad)
        return self._start_dense(item, member, grad)

    def _start_group(self, item: Item) -> Flight:
        lenders = [self._lenders[m] for m in item.members]
        grads = [self._dense(m, self.parameters[m].grad) for m in item.members]
        loans = [lender.lend(grad) for lender, grad in zip(lenders, grads, strict=True)]
        pieces = [Piece(loan.memory, lender.narrows) for loan, lender in zip(loans, lenders, strict=True)]
        handles = self.recipe.start(item.name + "".join(lender.order for lender in lenders), pieces)

        def finish() -> None:
            for handle in handles:
                handle.wait()
            for loan in loans:
                loan.give_back()

        return handles, finish

    def _start_dense(self, item: Item, member: int, grad: torch.Tensor | None) -> Flight:
        absent, lender = grad is None, self._lenders[member]
        loan = lender.lend(self._dense(member, grad))
        handle = self.recipe.start_one(item.name + lender.order, loan.memory, lender.narrows)

        def finish() -> Flight | None:
            try:
                handle.wait()
            except errors.MismatchError as error:
                return self._once_more(error, item, member, absent)
            loan.give_back()
            return None

        return (handle,), finish

    def _dense(self, member: int, grad: torch.Tensor | None) -> torch.Tensor:
        """The gradient; zeros where there is none, as another rank may have one."""
        parameter = self.parameters[member]
        if grad is None:
            grad = parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        elif grad.is_sparse:
            if not self._sparse_as_dense:
                raise errors.UnsupportedError(
                    f"the gradient of {self.names[member]} is sparse, and it is in a group: take it out of groups, "
                    "or use sparse_as_dense=True"
                )
            grad = parameter.grad = grad.to_dense()
        return grad

    # ---- sparse gradients --------------------------------------------------------------------------------

    def _start_sparse(self, item: Item, member: int, grad: torch.Tensor | None) -> Flight:
        parameter, recipe, absent = self.parameters[member], self.recipe, grad is None
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

        def finish() -> Flight | None:
            try:
                indices, values = map(torch.from_numpy, layout.unpack(handle.wait()))
            except errors.MismatchError as error:
                return self._once_more(error, item, member, absent)
            values = values.view(parameter.dtype)
            if recipe.op == collectives.AVERAGE:
                values = values / recipe.world.size
            parameter.grad = torch.sparse_coo_tensor(
                indices, values, parameter.shape, check_invariants=False
            ).coalesce()
            self._layouts[member] = layout
            return None

        return (handle,), finish

    def _once_more(self, error: errors.MismatchError, item: Item, member: int, absent: bool) -> Flight:
        """Let every rank try once more after a first mismatch: all ranks get the same.

        So a rank without a gradient (`absent`) learns that the gradient is sparse elsewhere.
        """
        if member in self._retried:
            raise error
        self._retried.add(member)
        if absent:
            parameter = self.parameters[member]
            parameter.grad = None
            dtype = torch.empty(0, dtype=_bits(parameter)).numpy().dtype
            self._layouts[member] = SparseLayout(1, tuple(parameter.shape[1:]), dtype)
        return self._start(item)


def _hook(owner: weakref.ref[Gradients], member: int) -> Callable[[torch.Tensor], None]:
    def computed(parameter: torch.Tensor) -> None:
        gradients = owner()
        if gradients is not None:  # else the optimizer is gone and the model stays
            grad = parameter.grad
            assert grad is None or not grad.requires_grad
            gradients.reducer.computed(member)

    return computed


def _bits(x: torch.Tensor) -> torch.dtype:
    """The dtype in which NumPy can hold the values of `x`."""
    return torch.int16 if x.dtype == torch.bfloat16 else x.dtype
