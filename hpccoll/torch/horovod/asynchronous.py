# SPDX-License-Identifier: Apache-2.0
"""Horovod's asynchronous functions: each returns a handle for poll() and synchronize().

Until synchronize() has returned, the tensors belong to the library. Arguments that many functions share:

tensor
    In host memory or a GPU's, of any dtype that the operation is defined for, strided or not. Of one on a GPU
    synchronize() lets the current stream wait for the result, and returns when that has been arranged.
name
    What matches the calls of different ranks, in any order; calls without a name match by their order.
average
    Deprecated predecessor of `op`.
op
    Average (default), Sum, Adasum (allreduce alone), Min, Max, Product.
prescale_factor, postscale_factor
    Factors of each input, and of the result.
process_set
    The ranks that take part.

What one rank can see by itself is a ValueError here; what the ranks disagree on is raised by synchronize().
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hpccoll import errors
from hpccoll.horovod import names
from hpccoll.horovod.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.horovod.reductions import Average, Sum, choose
from hpccoll.torch.horovod import requests
from hpccoll.torch.horovod.handles import synchronize

__all__ = [
    "allgather_async", "allreduce_async", "allreduce_async_", "alltoall_async", "broadcast_async", "broadcast_async_",
    "grouped_allgather_async", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter_async",
    "reducescatter_async", "sparse_allreduce_async",
]  # fmt: skip

Tensor = torch.Tensor


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to combine the tensors of all ranks; the result is a new tensor."""
    return requests.allreduce(
        name, [tensor], choose(op, average), prescale_factor, postscale_factor, process_set, group=False, in_place=False
    )  # fmt: skip


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to combine the tensors of all ranks in place."""
    return requests.allreduce(
        name, [tensor], choose(op, average), prescale_factor, postscale_factor, process_set, group=False, in_place=True
    )  # fmt: skip


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allreduce of several tensors that are agreed, fused and finished together; the result is a list."""
    return requests.allreduce(
        name, tensors, choose(op, average), prescale_factor, postscale_factor, process_set, group=True, in_place=False
    )  # fmt: skip


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allreduce of several tensors, in place, that are agreed, fused and finished together."""
    return requests.allreduce(
        name, tensors, choose(op, average), prescale_factor, postscale_factor, process_set, group=True, in_place=True
    )  # fmt: skip


def sparse_allreduce_async(
    tensor: Tensor, name: str | None, op: int | None, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Begin to add up sparse tensors (COO), or to average them: their entries are gathered.

    :returns: what waits when it is called, and returns the sum, not coalesced
    """
    own = choose(op)
    if own not in (Average, Sum):
        raise errors.InvalidArgumentError(
            f"sparse_allreduce of {name!r}: op is {own.name}, not Average or Sum"
        )
    where, what = tensor._indices().t(), tensor._values()  # noqa: SLF001 - indices() is of coalesced tensors alone
    indices = allgather_async(where, names.part(name, "indices"), process_set)
    values = allgather_async(what, names.part(name, "values"), process_set)
    divisor = world_of(process_set).size if own is Average else 1

    def wait() -> Tensor:
        gathered, where = synchronize(values), synchronize(indices).t()
        total = gathered / divisor if divisor > 1 else gathered
        return torch.sparse_coo_tensor(where, total, tensor.shape, check_invariants=False)

    return wait


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin to concatenate the tensors of all ranks along their first dimension, which may differ."""
    return requests.allgather(name, tensor, process_set)


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin an allgather of each of several tensors; the result is a list."""
    return requests.together(
        [
            requests.allgather(names.member(name, i, len(tensors)), tensor, process_set)
            for i, tensor in enumerate(tensors)
        ]
    )


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin to give the tensor of the global rank `root_rank` to all ranks; the result is a new tensor."""
    return requests.broadcast(name, tensor, root_rank, process_set, in_place=False)


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin to give the tensor of the global rank `root_rank` to all ranks, in place."""
    return requests.broadcast(name, tensor, root_rank, process_set, in_place=True)


def alltoall_async(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin to send `splits[i]` rows to each rank i of the set (default: as many to each).

    synchronize() returns the rows received, in order of the ranks, and how many came from each.
    """
    return requests.alltoall(name, tensor, splits, process_set)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin to combine the tensors of all ranks; each rank gets its share of the rows."""
    return requests.reducescatter(name, tensor, choose(op), prescale_factor, postscale_factor, process_set)


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reducescatter of each of several tensors; the result is a list."""
    own = choose(op)
    return requests.together(
        [
            requests.reducescatter(
                names.member(name, i, len(tensors)),
                tensor,
                own,
                prescale_factor,
                postscale_factor,
                process_set,
            )
            for i, tensor in enumerate(tensors)
        ]
    )
