# SPDX-License-Identifier: Apache-2.0
"""Tensors in, requests out: each operation once, under the blocking and the asynchronous functions.

The memory of a contiguous tensor goes to the library as it is. Others, and factors that the library does not apply
itself (of integers, or with Min, Max, Product), work on a copy, which is copied back where the operation is in place.

Arguments that many of them share: `name`, of the tensor, or None; `waits`: the caller goes on to wait, so nothing is
held back for others to be fused with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import torch

from hpccoll import errors
from hpccoll.compression import Compression
from hpccoll.horovod import adasum, names
from hpccoll.horovod.process_sets import ProcessSet, root_in, world_of
from hpccoll.horovod.reductions import Adasum, Average, ReduceOp, Sum, reduction
from hpccoll.torch.horovod.handles import Handle, Request
from hpccoll.torch.tensors import buffer, dense, from_bytes, overwritten
from hpccoll.world import World

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "reducescatter", "together"]

Tensor = torch.Tensor
P = ParamSpec("P")


def _named(
    start: Callable[Concatenate[str | None, P], Handle],
) -> Callable[Concatenate[str | None, P], Handle]:
    """Put the operation before the name of a request, and both before the text of an error."""
    operation = start.__name__

    @functools.wraps(start)
    def call(name: str | None, /, *args: P.args, **kwargs: P.kwargs) -> Handle:
        try:
            return start(names.request(operation, name), *args, **kwargs)
        except errors.HpccollError as error:
            raise type(error)(f"{operation} of {name or 'an unnamed tensor'}: {error}") from None

    return call


@_named
def allreduce(
    name: str | None,
    tensors: Sequence[Tensor],
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    group: bool,
    in_place: bool,
    wire: Compression | None = None,
    waits: bool = False,
) -> Handle:
    """Begin an allreduce of one tensor, or of a group.

    :param group: the tensors are one batch, and the result is a list; else there is one tensor
    :param in_place: the result overwrites what went in
    :param wire: what float32 and float64 values travel as
    """
    world = world_of(process_set)
    sources, after = [dense(tensor) for tensor in tensors], 1.0
    if not _scales_itself(sources, op):
        sources = [_scaled(source, prescale) for source in sources]
        op, after = _scaled_afterwards(op, postscale, world.size)
        prescale, postscale = 1.0, 1.0
    if op is Adasum:
        return _adasum(name, tensors, sources, world, after, group=group, in_place=in_place)
    targets = sources if in_place else [torch.empty_like(source) for source in sources]
    given = [buffer(source) for source in sources]
    taken = given if in_place else [buffer(target) for target in targets]
    request = world.core.allreduce(
        given if group else given[0],
        reduction(op),
        name,
        taken if group else taken[0],
        prescale,
        postscale,
        wire,
        waits,
    )

    def finish(_: list[Any]) -> Any:
        done = [_scaled(target, after) for target in targets]
        results = [_overwrite(*pair) for pair in zip(tensors, done, strict=True)] if in_place else done
        return results if group else results[0]

    return Handle([request], finish)


def _adasum(
    name: str | None, tensors: Sequence[Tensor], sources: list[Tensor], world: World, after: float, *, group: bool,
    in_place: bool,
) -> Handle:  # fmt: skip
    """Adasum is formed in float32 or wider, each tensor for itself."""
    requests: list[Request] = []
    for i, source in enumerate(sources):
        if source.is_cuda:
            raise errors.UnsupportedError("Adasum is formed in host memory: give it tensor.cpu()")
        if not source.is_floating_point():
            raise errors.UnsupportedError(f"Adasum of {source.dtype}: it is for floating-point values")
        wide = source.detach().to(torch.promote_types(source.dtype, torch.float32))
        requests.append(adasum.begin(wide.numpy(), names.member(name, i, len(sources)), world))

    def finish(results: list[Any]) -> Any:
        done = [
            _scaled(torch.from_numpy(result).to(source.dtype), after)
            for result, source in zip(results, sources, strict=True)
        ]
        if in_place:
            done = [_overwrite(*pair) for pair in zip(tensors, done, strict=True)]
        return done if group else done[0]

    return Handle(requests, finish)


@_named
def broadcast(
    name: str | None,
    tensor: Tensor,
    root_rank: int,
    process_set: ProcessSet,
    *,
    in_place: bool,
    waits: bool = False,
) -> Handle:
    """Begin a broadcast from the global rank `root_rank`."""
    root = root_in(process_set, root_rank)
    source = dense(tensor)
    target = source if in_place else torch.empty_like(source)
    given = buffer(source)
    request = world_of(process_set).core.broadcast(
        given, root, name, given if in_place else buffer(target), waits
    )
    return Handle([request], lambda _: _overwrite(tensor, target) if in_place else target)


@_named
def allgather(
    name: str | None, tensor: Tensor, process_set: ProcessSet, *, with_rows: bool = False, waits: bool = False
) -> Handle:
    """Begin an allgather; a tensor without dimensions is one row.

    :param with_rows: the result is the output and the rows that came from each rank (a NumPy array)
    """
    source = dense(tensor)
    source = source if source.dim() else source.view(1)
    request = world_of(process_set).core.allgather(buffer(source), name, None, waits)

    def finish(results: list[Any]) -> Any:
        rows = request.rows()
        result = from_bytes(results[0], rows, source)
        return (result, rows) if with_rows else result

    return Handle([request], finish)


@_named
def alltoall(
    name: str | None,
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None,
    process_set: ProcessSet,
    *,
    waits: bool = False,
) -> Handle:
    """Begin an alltoall; the result is the output, and the rows that came from each rank (int32, or as `splits`)."""
    source = dense(tensor)
    rows = splits.tolist() if isinstance(splits, Tensor) else splits
    dtype = splits.dtype if isinstance(splits, Tensor) else torch.int32
    request = world_of(process_set).core.alltoall(buffer(source), rows, name, None, waits)

    def finish(results: list[Any]) -> tuple[Tensor, Tensor]:
        received, came = results[0]
        return from_bytes(received, came, source), torch.from_numpy(came).to(dtype)

    return Handle([request], finish)


@_named
def reducescatter(
    name: str | None,
    tensor: Tensor,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    waits: bool = False,
) -> Handle:
    """Begin a reducescatter: of n rows the first n mod size ranks get one more."""
    world = world_of(process_set)
    source, after = dense(tensor), 1.0
    if not _scales_itself([source], op):
        source = _scaled(source, prescale)
        op, after = _scaled_afterwards(op, postscale, world.size)
        prescale, postscale = 1.0, 1.0
    if source.dim() == 0:
        raise errors.InvalidArgumentError("a tensor without dimensions has no rows to share out")
    rows = len(source) // world.size + (world.rank < len(source) % world.size)
    target = torch.empty((rows, *source.shape[1:]), dtype=source.dtype, device=source.device)
    request = world.core.reducescatter(
        buffer(source), reduction(op), name, buffer(target), prescale, postscale, waits
    )
    return Handle([request], lambda _: _scaled(target, after))


def together(handles: Sequence[Handle]) -> Handle:
    """Several requests as one; the result is a list."""
    return Handle(list(handles), list)


def _scales_itself(tensors: Sequence[Tensor], op: ReduceOp) -> bool:
    """Whether the library applies the factors."""
    return op in (Sum, Average) and all(one.is_floating_point() or one.is_complex() for one in tensors)


def _scaled_afterwards(op: ReduceOp, postscale: float, size: int) -> tuple[ReduceOp, float]:
    """The reduction, and the factor of its result: integers are cut off once, so a mean is divided along with it."""
    return (Sum, postscale / size) if op is Average and postscale != 1.0 else (op, postscale)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    """A copy of `tensor` times `factor`; integers are cut off towards zero."""
    if factor == 1.0:
        return tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.detach() * factor
    return (tensor.double() * factor).to(tensor.dtype)


def _overwrite(tensor: Tensor, result: Tensor) -> Tensor:
    """The end of an operation in place: `result` is `tensor` itself, or the copy that stood in for it."""
    if result is tensor:
        overwritten(tensor)
    else:
        with torch.no_grad():
            tensor.copy_(result)
    return tensor
