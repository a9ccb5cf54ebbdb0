# SPDX-License-Identifier: Apache-2.0
"""Horovod's blocking functions. Those that return a new tensor can be differentiated.

Their arguments are those of hpccoll.torch.horovod.asynchronous. The gradients are Horovod's: a reduction's is reduced
likewise; an allgather's and a broadcast's is averaged over the ranks, and each rank (the root) takes its part; a
reducescatter's is gathered, times the ranks with Sum. So the sum over the ranks of what is differentiated is meant with
Sum, the mean with Average.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from hpccoll import errors
from hpccoll.compression import Compression as Wire
from hpccoll.horovod import names
from hpccoll.horovod.job import rank
from hpccoll.horovod.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.horovod.reductions import Adasum, Average, ReduceOp, Sum, choose
from hpccoll.torch.horovod import asynchronous, requests
from hpccoll.torch.horovod.compression import Compression, Compressor, on_the_wire
from hpccoll.torch.horovod.handles import synchronize

__all__ = [
    "allgather", "allreduce", "allreduce_", "alltoall", "broadcast", "broadcast_", "grouped_allgather",
    "grouped_allreduce", "grouped_allreduce_", "grouped_reducescatter", "reducescatter",
]  # fmt: skip

Tensor = torch.Tensor


def _recorded(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def _apply(function: Any, *args: Any) -> Any:
    return function.apply(*args)


# ---- allreduce -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Reduce:
    """Everything about an allreduce but its tensors."""

    name: str | None
    op: ReduceOp
    prescale: float
    postscale: float
    process_set: ProcessSet
    wire: Wire | None
    group: bool

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if _recorded(*tensors):
            return list(_apply(_Allreduce, self, *tensors))
        result = self.run(tensors)
        return result if self.group else [result]

    def run(self, tensors: Sequence[Tensor]) -> Any:
        return requests.allreduce(
            self.name, tensors, self.op, self.prescale, self.postscale, self.process_set, group=self.group,
            in_place=False, wire=self.wire, waits=True,
        ).wait()  # fmt: skip


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: _Reduce, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.how = how
        result = how.run(tensors)
        return tuple(result) if how.group else (result,)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        how: _Reduce = ctx.how
        if how.op not in (Average, Sum, Adasum):
            raise errors.UnsupportedError(f"allreduce of {how.name!r}: there is no gradient of {how.op.name}")
        back = dataclasses.replace(how, name=names.part(how.name, "gradient"))
        return (None, *back(gradients))


def _reduced(tensors: Sequence[Tensor], compression: type[Compressor], how: _Reduce) -> list[Tensor]:
    """Compress, reduce, decompress; the library does all of it on its way if it can."""
    wire = on_the_wire(compression, *tensors)
    if wire is not None or compression is Compression.none:
        return dataclasses.replace(how, wire=wire)(tensors)
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = how([compressed for compressed, _ in pairs])
    return [compression.decompress(one, ctx) for one, (_, ctx) in zip(results, pairs, strict=True)]


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Combine the tensors of all ranks into a new tensor."""
    how = _Reduce(
        name, choose(op, average), prescale_factor, postscale_factor, process_set, None, group=False
    )
    return _reduced([tensor], compression, how)[0]


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Combine the tensors of all ranks in place; returns `tensor`."""
    result: Tensor = requests.allreduce(
        name, [tensor], choose(op, average), prescale_factor, postscale_factor, process_set, group=False, in_place=True,
        waits=True,
    ).wait()  # fmt: skip
    return result


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Allreduce several tensors that are agreed, fused and finished together, into new ones."""
    how = _Reduce(name, choose(op, average), prescale_factor, postscale_factor, process_set, None, group=True)
    return _reduced(tensors, compression, how)


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Allreduce several tensors, in place, that are agreed, fused and finished together."""
    result: list[Tensor] = requests.allreduce(
        name, tensors, choose(op, average), prescale_factor, postscale_factor, process_set, group=True, in_place=True,
        waits=True,
    ).wait()  # fmt: skip
    return result


# ---- allgather -------------------------------------------------------------------------------------------


class _Allgather(torch.autograd.Function):
    """Of several tensors at once, one request each, with these names."""

    @staticmethod
    def forward(
        ctx: Any, called: list[str | None], process_set: ProcessSet, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.called, ctx.process_set, ctx.shapes = called, process_set, [tensor.shape for tensor in tensors]
        handles = [
            requests.allgather(name, tensor, process_set, with_rows=True, waits=True)
            for name, tensor in zip(called, tensors, strict=True)
        ]
        results, ctx.rows = zip(*[handle.wait() for handle in handles], strict=True)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        me = world_of(ctx.process_set).rank
        name = names.part(ctx.called[0], "gradient")
        averaged = grouped_allreduce(gradients, name=name, op=Average, process_set=ctx.process_set)
        own = [
            whole.narrow(0, int(rows[:me].sum()), int(rows[me])).view(shape)
            for whole, rows, shape in zip(averaged, ctx.rows, ctx.shapes, strict=True)
        ]
        return (None, None, *own)


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Concatenate the tensors of all ranks along their first dimension, which may differ."""
    result: Tensor
    if _recorded(tensor):
        (result,) = _apply(_Allgather, [name], process_set, tensor)
    else:
        result = requests.allgather(name, tensor, process_set, waits=True).wait()
    return result


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """Allgather each of several tensors."""
    if _recorded(*tensors):
        called = [names.member(name, i, len(tensors)) for i in range(len(tensors))]
        return list(_apply(_Allgather, called, process_set, *tensors))
    result: list[Tensor] = synchronize(asynchronous.grouped_allgather_async(tensors, name, process_set))
    return result


# ---- broadcast -------------------------------------------------------------------------------------------


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Tensor:
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, name, process_set
        result: Tensor = requests.broadcast(
            name, tensor, root_rank, process_set, in_place=False, waits=True
        ).wait()
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        name = names.part(ctx.name, "gradient")
        averaged = allreduce(gradient, name=name, op=Average, process_set=ctx.process_set)
        return averaged if rank() == ctx.root_rank else torch.zeros_like(averaged), None, None, None


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Give the tensor of the global rank `root_rank` to all ranks, as a new tensor."""
    result: Tensor
    if _recorded(tensor):
        result = _apply(_Broadcast, tensor, root_rank, name, process_set)
    else:
        result = requests.broadcast(name, tensor, root_rank, process_set, in_place=False, waits=True).wait()
    return result


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Give the tensor of the global rank `root_rank` to all ranks, in place; returns `tensor`."""
    result: Tensor = requests.broadcast(
        name, tensor, root_rank, process_set, in_place=True, waits=True
    ).wait()
    return result


# ---- alltoall --------------------------------------------------------------------------------------------


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[Tensor, Tensor]:
        output, came = requests.alltoall(name, tensor, splits, process_set, waits=True).wait()
        ctx.came, ctx.name, ctx.process_set = came, name, process_set
        ctx.mark_non_differentiable(came)
        return output, came

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        sent_back, _ = alltoall(gradient, ctx.came, names.part(ctx.name, "gradient"), ctx.process_set)
        return sent_back, None, None, None


def alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send `splits[i]` rows to each rank i of the set (default: as many to each).

    :returns: the rows received, in order of the ranks; if `splits` is given, also how many came from each
    """
    if _recorded(tensor):
        output, came = _apply(_Alltoall, tensor, splits, name, process_set)
    else:
        output, came = requests.alltoall(name, tensor, splits, process_set, waits=True).wait()
    return output if splits is None else (output, came)


# ---- reducescatter ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _ReduceRows:
    """Everything about reducescatters but their tensors."""

    called: list[str | None]
    op: ReduceOp
    process_set: ProcessSet
    prescale: float
    postscale: float

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(_apply(_Reducescatter, self, *tensors)) if _recorded(*tensors) else self.run(tensors)

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        handles = [
            requests.reducescatter(
                name, tensor, self.op, self.prescale, self.postscale, self.process_set, waits=True
            )
            for name, tensor in zip(self.called, tensors, strict=True)
        ]
        return [handle.wait() for handle in handles]


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: _ReduceRows, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.how = how
        return tuple(how.run(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        how: _ReduceRows = ctx.how
        if how.op not in (Average, Sum):
            raise errors.UnsupportedError(
                f"reducescatter of {how.called[0]!r}: there is no gradient of {how.op.name}"
            )
        factor = how.prescale * how.postscale * (world_of(how.process_set).size if how.op is Sum else 1)
        name = names.part(how.called[0], "gradient")
        return (None, *grouped_allgather([factor * one for one in gradients], name, how.process_set))


def _reduced_rows(tensors: Sequence[Tensor], compression: type[Compressor], how: _ReduceRows) -> list[Tensor]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = how([compressed for compressed, _ in pairs])
    return [compression.decompress(one, ctx) for one, (_, ctx) in zip(results, pairs, strict=True)]


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Combine the tensors of all ranks; of n rows each rank gets n // size, the first n % size ranks one more."""
    how = _ReduceRows([name], choose(op), process_set, prescale_factor, postscale_factor)
    return _reduced_rows([tensor], compression, how)[0]


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Reducescatter each of several tensors."""
    called = [names.member(name, i, len(tensors)) for i in range(len(tensors))]
    how = _ReduceRows(called, choose(op), process_set, prescale_factor, postscale_factor)
    return _reduced_rows(tensors, compression, how)
