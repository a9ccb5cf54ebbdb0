# SPDX-License-Identifier: Apache-2.0
"""Horovod's functions for torch tensors; those that return a new tensor can be differentiated.

reduce and gather cannot: only the root has a result, so the other ranks would not take part in the backward pass.

The gradients are Horovod's:

- allreduce: the gradient is reduced in the same way.
- allgather and broadcast: the gradient is averaged over the ranks. Each rank takes its own part; for a broadcast the
  root takes all, the others zeros.
- alltoall: the parts go back to the ranks that sent them.
- reducescatter: the gradients of all ranks are gathered, and multiplied by the number of ranks for Sum.
- scatter, which Horovod does not have: the rows go back to the root, the others take zeros.

So Sum differentiates the sum over the ranks, and Average the mean.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from hpccoll import errors
from hpccoll.frontend import names
from hpccoll.frontend.calls import Allreduce, Reducescatter
from hpccoll.frontend.compression import Compressors
from hpccoll.frontend.handles import wait_for_all
from hpccoll.frontend.process_sets import ProcessSet, world_of
from hpccoll.frontend.reductions import Adasum, Average, Sum
from hpccoll.frontend.refused import each
from hpccoll.horovod.job import rank
from hpccoll.horovod.operations import Operations
from hpccoll.torch.adapter import ADAPTER

__all__ = [
    "Compression", "TorchOperations", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async",
    "allreduce_async_", "alltoall", "alltoall_async", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
    "gather", "gather_async", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async",
    "reduce", "reduce_async", "reducescatter", "reducescatter_async", "scatter", "scatter_async",
    "sparse_allreduce_async",
]  # fmt: skip

Tensor = torch.Tensor


def _recorded(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def _apply(function: Any, *args: Any) -> Any:
    return function.apply(*args)


def _zeros(tensor: Tensor) -> Tensor:
    """Return zeros that depend on a tensor for autograd, so that all ranks take part in a second derivative."""
    return torch.where(torch.zeros_like(tensor, dtype=torch.bool), tensor, torch.zeros_like(tensor))


class TorchOperations(Operations[Tensor]):
    """Operations that autograd records if one of the tensors requires a gradient."""

    def run_allreduce(self, call: Allreduce, tensors: Sequence[Tensor]) -> list[Tensor]:
        if _recorded(*tensors):
            return list(_apply(_Allreduce, self, call, *tensors))
        return super().run_allreduce(call, tensors)

    def run_allgather(self, tensor: Tensor, name: str | None, process_set: ProcessSet) -> Tensor:
        if _recorded(tensor):
            (result,) = _apply(_Allgather, self, [name], process_set, tensor)
            return result  # type: ignore[no-any-return]
        return super().run_allgather(tensor, name, process_set)

    def run_grouped_allgather(
        self, tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet
    ) -> list[Tensor]:
        if _recorded(*tensors):
            return list(_apply(_Allgather, self, names.members(name, len(tensors)), process_set, *tensors))
        return super().run_grouped_allgather(tensors, name, process_set)

    def run_broadcast(self, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
        if _recorded(tensor):
            return _apply(_Broadcast, self, tensor, root_rank, name, process_set)  # type: ignore[no-any-return]
        return super().run_broadcast(tensor, root_rank, name, process_set)

    def run_alltoall(
        self, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[Tensor, Tensor]:
        if _recorded(tensor):
            return _apply(_Alltoall, self, tensor, splits, name, process_set)  # type: ignore[no-any-return]
        return super().run_alltoall(tensor, splits, name, process_set)

    def run_scatter(
        self, tensor: Tensor, root_rank: int, splits: Any, name: str | None, process_set: ProcessSet
    ) -> Tensor:
        if _recorded(tensor):
            return _apply(_Scatter, self, tensor, root_rank, splits, name, process_set)  # type: ignore[no-any-return]
        return super().run_scatter(tensor, root_rank, splits, name, process_set)

    def run_reducescatter(self, call: Reducescatter, tensors: Sequence[Tensor]) -> list[Tensor]:
        if _recorded(*tensors):
            return list(_apply(_Reducescatter, self, call, *tensors))
        return super().run_reducescatter(call, tensors)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operations: TorchOperations, call: Allreduce, *tensors: Tensor) -> tuple[Tensor, ...]:
        handle = operations.requests.begin(call, tensors, in_place=False)
        results = handle.wait()
        ctx.operations, ctx.call, ctx.name = operations, call, names.of_call(call.name, handle.number)
        return tuple(results) if call.group else (results,)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call: Allreduce = ctx.call
        if call.op not in (Average, Sum, Adasum):
            raise errors.UnsupportedError(f"allreduce of {call.name!r}: there is no gradient of {call.op.name}")
        back = dataclasses.replace(call, name=names.part(ctx.name, "gradient"))
        return (None, None, *ctx.operations.run_allreduce(back, gradients))


class _Allgather(torch.autograd.Function):
    """Several tensors at once, with one request and name per tensor."""

    @staticmethod
    def forward(
        ctx: Any, operations: TorchOperations, members: list[str | None], process_set: ProcessSet, *tensors: Tensor
    ) -> tuple[Tensor, ...]:  # fmt: skip
        ctx.operations, ctx.process_set = operations, process_set
        ctx.shapes = [tensor.shape for tensor in tensors]
        handles = each(operations.requests.allgather, members, tensors, process_set, with_rows=True)
        results, ctx.rows = zip(*wait_for_all(handles), strict=True)
        ctx.name = names.of_call(members[0], handles[0].number)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        me = world_of(ctx.process_set).rank
        name = names.part(ctx.name, "gradient")
        averaged = ctx.operations.grouped_allreduce(gradients, name=name, op=Average, process_set=ctx.process_set)
        own = [
            whole.narrow(0, int(rows[:me].sum()), int(rows[me])).view(shape)
            for whole, rows, shape in zip(averaged, ctx.rows, ctx.shapes, strict=True)
        ]
        return (None, None, None, *own)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, operations: TorchOperations, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Tensor:  # fmt: skip
        handle = operations.requests.broadcast(name, tensor, root_rank, process_set, in_place=False)
        result: Tensor = handle.wait()
        ctx.operations, ctx.root_rank, ctx.process_set = operations, root_rank, process_set
        ctx.name = names.of_call(name, handle.number)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        averaged = ctx.operations.allreduce(
            gradient, name=names.part(ctx.name, "gradient"), op=Average, process_set=ctx.process_set
        )
        return None, averaged if rank() == ctx.root_rank else _zeros(averaged), None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, operations: TorchOperations, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        handle = operations.requests.alltoall(name, tensor, splits, process_set)
        output, rows = handle.wait()
        ctx.operations, ctx.rows, ctx.process_set = operations, rows, process_set
        ctx.name = names.of_call(name, handle.number)
        ctx.mark_non_differentiable(rows)
        return output, rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        sent_back, _ = ctx.operations.alltoall(gradient, ctx.rows, names.part(ctx.name, "gradient"), ctx.process_set)
        return None, sent_back, None, None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, operations: TorchOperations, tensor: Tensor, root_rank: int, splits: Any, name: str | None,
        process_set: ProcessSet,
    ) -> Tensor:  # fmt: skip
        handle = operations.requests.scatter(name, tensor, root_rank, splits, process_set)
        rows: Tensor = handle.wait()
        ctx.operations, ctx.shape = operations, tensor.shape
        ctx.how = root_rank, splits, names.part(names.of_call(name, handle.number), "gradient"), process_set
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, _apply(_Unscatter, ctx.operations, gradient, ctx.shape, *ctx.how), None, None, None, None


class _Unscatter(torch.autograd.Function):
    """The inverse of a scatter: the rows on the root, zeros on the other ranks."""

    @staticmethod
    def forward(
        ctx: Any, operations: TorchOperations, rows: Tensor, shape: torch.Size, root_rank: int, splits: Any,
        name: str | None, process_set: ProcessSet,
    ) -> Tensor:  # fmt: skip
        ctx.operations, ctx.how = operations, (root_rank, splits, names.part(name, "gradient"), process_set)
        gathered = operations.gather(rows, root_rank, name, process_set)
        return rows.new_zeros(shape) if gathered is None else gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (None, ctx.operations.scatter(gradient, *ctx.how), *[None] * 5)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operations: TorchOperations, call: Reducescatter, *tensors: Tensor) -> tuple[Tensor, ...]:
        handles = operations.begin_reducescatter(call, tensors, waits=False)
        results = tuple(wait_for_all(handles))
        ctx.operations, ctx.call, ctx.name = operations, call, names.of_call(call.names[0], handles[0].number)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call: Reducescatter = ctx.call
        if call.op not in (Average, Sum):
            raise errors.UnsupportedError(f"reducescatter of {call.names[0]!r}: there is no gradient of {call.op.name}")
        size = world_of(call.process_set).size
        factor = call.prescale * call.postscale * (size if call.op is Sum else 1)
        scaled = [factor * gradient for gradient in gradients]
        name = names.part(ctx.name, "gradient")
        return (None, None, *ctx.operations.grouped_allgather(scaled, name, call.process_set))


# ---- the functions, which hpccoll.torch exports --------------------------------------------------------

Compression = Compressors(ADAPTER)
_operations = TorchOperations(ADAPTER)

allgather = _operations.allgather
allgather_async = _operations.allgather_async
allreduce = _operations.allreduce
allreduce_ = _operations.allreduce_
allreduce_async = _operations.allreduce_async
allreduce_async_ = _operations.allreduce_async_
alltoall = _operations.alltoall
alltoall_async = _operations.alltoall_async
broadcast = _operations.broadcast
broadcast_ = _operations.broadcast_
broadcast_async = _operations.broadcast_async
broadcast_async_ = _operations.broadcast_async_
gather = _operations.gather
gather_async = _operations.gather_async
grouped_allgather = _operations.grouped_allgather
grouped_allgather_async = _operations.grouped_allgather_async
grouped_allreduce = _operations.grouped_allreduce
grouped_allreduce_ = _operations.grouped_allreduce_
grouped_allreduce_async = _operations.grouped_allreduce_async
grouped_allreduce_async_ = _operations.grouped_allreduce_async_
grouped_reducescatter = _operations.grouped_reducescatter
grouped_reducescatter_async = _operations.grouped_reducescatter_async
reduce = _operations.reduce
reduce_async = _operations.reduce_async
reducescatter = _operations.reducescatter
reducescatter_async = _operations.reducescatter_async
scatter = _operations.scatter
scatter_async = _operations.scatter_async
sparse_allreduce_async = _operations.sparse_allreduce_async
