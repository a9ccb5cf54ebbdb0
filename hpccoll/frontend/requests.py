# SPDX-License-Identifier: Apache-2.0
"""Turns tensors into requests: each operation once, below the blocking and the asynchronous functions of a front end.

The library uses the memory of a contiguous tensor directly. A tensor is copied if it is not contiguous, or if it needs
a factor that the library does not apply (of integers, or with Min, Max, Product). If the operation is in place, the
result is copied back.

Common arguments: `name` of the tensor, or None; `waits`: the caller waits at once, so the library does not delay the
request for fusion.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import numpy as np

from hpccoll import errors
from hpccoll._core import HOROVOD_WORDS
from hpccoll.collectives import Handle
from hpccoll.compression import Compression
from hpccoll.frontend import adasum, names
from hpccoll.frontend.adapter import TensorAdapter, is_floating, is_inexact
from hpccoll.frontend.called import called, of_call
from hpccoll.frontend.calls import Allreduce
from hpccoll.frontend.handles import HandleNumber, Waitable
from hpccoll.frontend.process_sets import ProcessSet, root_in, world_of
from hpccoll.frontend.reductions import Adasum, Average, Reduction, Sum
from hpccoll.frontend.refused import in_order, tells
from hpccoll.worlds import World

__all__ = ["Requests", "check_factors", "group_of", "together"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def _named(
    start: Callable[Concatenate[S, str | None, P], HandleNumber],
) -> Callable[Concatenate[S, str | None, P], HandleNumber]:
    """Prefix the operation to the name of a request, and the called function to the text of an error."""
    operation = start.__name__

    @functools.wraps(start)
    def call(self: S, name: str | None, /, *args: P.args, **kwargs: P.kwargs) -> HandleNumber:
        try:
            whole = f"grouped_{operation}" if kwargs.get("group") else operation
            return start(self, names.request(whole, name), *args, **kwargs)
        except errors.HpccollError as error:
            raise of_call(called(operation), name, error) from None

    return tells(call)


_in_flight = names.InFlight()


def _begin(world: World, operation: str, x: Any, name: str | None, *arguments: Any, **options: Any) -> Handle:
    """Begin an operation unless its name is in flight; the arguments are those of _core.Set.collective()."""
    _in_flight.check(name, world)
    options["words"] = HOROVOD_WORDS  # refused.tells() tells the other ranks
    handle: Handle = world.core.collective(operation, x, name, *arguments, **options)
    _in_flight.add(name, world, handle)
    return handle


class Requests(Generic[T]):
    """The operations on one framework's tensors. Each method begins one and returns a handle."""

    def __init__(self, adapter: TensorAdapter[T]) -> None:
        self.adapter = adapter

    @_named
    def allreduce(
        self,
        name: str | None,
        tensors: Sequence[T],
        op: Reduction,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        group: bool,
        in_place: bool,
        wire: Compression | None = None,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin an allreduce of one tensor, or of a group.

        :param group: the tensors are one batch, and the result is a list; else there is one tensor
        :param in_place: the result overwrites the tensors
        :param wire: the type of float32 and float64 values between nodes
        """
        adapter, world = self.adapter, world_of(process_set)
        sources, op, prescale, postscale, after = self._scaled_before(
            [adapter.contiguous(tensor) for tensor in tensors], op, prescale, postscale, world.size
        )
        if op is Adasum:
            return self._adasum(name, tensors, sources, world, after, group=group, in_place=in_place)
        targets = sources if in_place else [adapter.empty(x, adapter.shape(x)) for x in sources]
        given = [adapter.buffer(source) for source in sources]
        taken = given if in_place else [adapter.buffer(target) for target in targets]
        x, out = (given, taken) if group else (given[0], taken[0])
        request = _begin(world, "allreduce", x, name, out, waits, op, None, None, prescale, postscale, wire)

        def finish(_: list[Any]) -> Any:
            done = [self._scaled(target, after) for target in targets]
            results = self._overwritten(tensors, done) if in_place else done
            return results if group else results[0]

        return HandleNumber([request], finish)

    def begin(self, call: Allreduce, tensors: Sequence[T], *, in_place: bool, waits: bool = False) -> HandleNumber:
        """Begin a described allreduce; without `call.group` there is one tensor."""
        return self.allreduce(
            call.name, tensors, call.op, call.prescale, call.postscale, call.process_set, group=call.group,
            in_place=in_place, wire=call.wire, waits=waits,
        )  # fmt: skip

    def _adasum(
        self, name: str | None, tensors: Sequence[T], sources: list[T], world: World, after: float, *, group: bool,
        in_place: bool,
    ) -> HandleNumber:  # fmt: skip
        """Begin an Adasum of each tensor, computed in float32 or wider."""
        adapter, requests = self.adapter, list[Waitable]()
        dtypes = [adapter.dtype(source) for source in sources]
        for source, dtype in zip(sources, dtypes, strict=True):  # before the first begins: one refused, all refused
            if adapter.on_device(source):
                raise errors.UnsupportedError("Adasum is formed in host memory: copy the tensor to the host first")
            if not is_floating(dtype):
                raise errors.UnsupportedError(f"Adasum of {dtype}: it is for floating-point values")
        members = names.members(name, len(sources))
        with in_order(world.core, members):
            for own, source, dtype in zip(members, sources, dtypes, strict=True):
                wide = adapter.cast(source, "float64" if dtype == "float64" else "float32")
                _in_flight.check(own, world)
                requests.append(started := adasum.begin(adapter.to_numpy(wide), own, world))
                _in_flight.add(own, world, started)

        def finish(results: list[np.ndarray]) -> Any:
            done = [
                self._scaled(adapter.cast(adapter.from_numpy(result), dtype), after)
                for result, dtype in zip(results, dtypes, strict=True)
            ]
            if in_place:
                done = self._overwritten(tensors, done)
            return done if group else done[0]

        return HandleNumber(requests, finish)

    @_named
    def broadcast(
        self,
        name: str | None,
        tensor: T,
        root_rank: int,
        process_set: ProcessSet,
        *,
        in_place: bool,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin a broadcast from the global rank `root_rank`."""
        adapter, root = self.adapter, root_in(process_set, root_rank)
        source = adapter.contiguous(tensor)
        target = source if in_place else adapter.empty(source, adapter.shape(source))
        given = adapter.buffer(source)
        taken = given if in_place else adapter.buffer(target)
        request = _begin(world_of(process_set), "broadcast", given, name, taken, waits, root=root)

        def finish(_: list[Any]) -> T:
            return self._overwritten([tensor], [target])[0] if in_place else target

        return HandleNumber([request], finish)

    @_named
    def allgather(
        self,
        name: str | None,
        tensor: T,
        process_set: ProcessSet,
        *,
        with_rows: bool = False,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin an allgather; a tensor without dimensions is one row.

        :param with_rows: the result is the output and the rows that came from each rank (a NumPy array)
        """
        adapter = self.adapter
        source = adapter.contiguous(tensor)
        shape = adapter.shape(source) or (1,)
        request = _begin(world_of(process_set), "allgather", adapter.buffer(source, shape), name, None, waits)

        def finish(results: list[Any]) -> Any:
            rows = request.rows()
            result = adapter.from_bytes(results[0], source, (int(rows.sum()), *shape[1:]))
            return (result, rows) if with_rows else result

        return HandleNumber([request], finish)

    @_named
    def alltoall(
        self,
        name: str | None,
        tensor: T,
        splits: T | Sequence[int] | np.ndarray | None,
        process_set: ProcessSet,
        *,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin an alltoall; the result is the output, and the rows from each rank (int32, or as `splits`)."""
        adapter, (rows_sent, dtype) = self.adapter, self._rows_sent(splits, tensor)
        source = adapter.contiguous(tensor)
        given = adapter.buffer(source)
        request = _begin(world_of(process_set), "alltoall", given, name, None, waits, splits=rows_sent)

        def finish(results: list[Any]) -> tuple[T, T]:
            received, rows = results[0]
            shape = (int(rows.sum()), *adapter.shape(source)[1:])
            return adapter.from_bytes(received, source, shape), adapter.cast(adapter.from_numpy(rows), dtype)

        return HandleNumber([request], finish)

    @_named
    def reducescatter(
        self,
        name: str | None,
        tensor: T,
        op: Reduction,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin a reducescatter: of n rows the first n mod size ranks get one more."""
        adapter, world = self.adapter, world_of(process_set)
        (source,), op, prescale, postscale, after = self._scaled_before(
            [adapter.contiguous(tensor)], op, prescale, postscale, world.size
        )
        shape = adapter.shape(source)
        if not shape:
            raise errors.InvalidArgumentError("a tensor without dimensions has no rows to share out")
        rows = shape[0] // world.size + (world.rank < shape[0] % world.size)
        target = adapter.empty(source, (rows, *shape[1:]))
        request = _begin(
            world,
            "reducescatter",
            adapter.buffer(source),
            name,
            adapter.buffer(target),
            waits,
            op,
            prescale=prescale,
            postscale=postscale,
        )
        return HandleNumber([request], lambda _: self._scaled(target, after))

    @_named
    def reduce(
        self,
        name: str | None,
        tensor: T,
        op: Reduction,
        root_rank: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin a reduction to the global rank `root_rank`; the result is None on the other ranks."""
        adapter, world, root = self.adapter, world_of(process_set), root_in(process_set, root_rank)
        (source,), op, prescale, postscale, after = self._scaled_before(
            [adapter.contiguous(tensor)], op, prescale, postscale, world.size
        )
        target = adapter.empty(source, adapter.shape(source)) if world.rank == root else None
        request = _begin(
            world,
            "reduce",
            adapter.buffer(source),
            name,
            None if target is None else adapter.buffer(target),
            waits,
            op,
            root,
            prescale=prescale,
            postscale=postscale,
        )
        return HandleNumber([request], lambda _: None if target is None else self._scaled(target, after))

    @_named
    def gather(
        self, name: str | None, tensor: T, root_rank: int, process_set: ProcessSet, *, waits: bool = False
    ) -> HandleNumber:
        """Begin a gather to the global rank `root_rank`; the result is None on the other ranks.

        A tensor without dimensions is one row.
        """
        adapter, world, root = self.adapter, world_of(process_set), root_in(process_set, root_rank)
        source = adapter.contiguous(tensor)
        shape = adapter.shape(source) or (1,)
        request = _begin(world, "gather", adapter.buffer(source, shape), name, None, waits, root=root)

        def finish(results: list[Any]) -> T | None:
            if world.rank != root:
                return None
            return adapter.from_bytes(results[0], source, (int(request.rows().sum()), *shape[1:]))

        return HandleNumber([request], finish)

    @_named
    def scatter(
        self,
        name: str | None,
        tensor: T,
        root_rank: int,
        splits: T | Sequence[int] | np.ndarray | None,
        process_set: ProcessSet,
        *,
        waits: bool = False,
    ) -> HandleNumber:
        """Begin a scatter of the rows of the global rank `root_rank`; the other ranks' tensors give dtype and row."""
        adapter, world, root = self.adapter, world_of(process_set), root_in(process_set, root_rank)
        source = adapter.contiguous(tensor)
        given, (rows_sent, _) = adapter.buffer(source), self._rows_sent(splits, tensor)
        request = _begin(world, "scatter", given, name, None, waits, root=root, splits=rows_sent)

        def finish(results: list[Any]) -> T:
            rows = int(request.rows().sum())
            return adapter.from_bytes(results[0], source, (rows, *adapter.shape(source)[1:]))

        return HandleNumber([request], finish)

    def _rows_sent(self, splits: T | Sequence[int] | np.ndarray | None, tensor: T) -> tuple[Sequence[int] | None, str]:
        """Return `splits` as numbers, and the dtype of the rows received: of a tensor `splits`, else int32.

        :param splits: a tensor may have any layout in host memory; an array of NumPy is a tensor if `tensor` is one
        """
        if splits is None or isinstance(splits, Sequence):
            return splits, "int32"
        if isinstance(splits, np.ndarray) and not isinstance(tensor, np.ndarray):
            return splits.tolist(), "int32"
        counts = cast("T", splits)
        return self.adapter.to_numpy(self.adapter.contiguous(counts)).tolist(), self.adapter.dtype(counts)

    def _scaled_before(
        self, sources: list[T], op: Reduction, prescale: float, postscale: float, size: int
    ) -> tuple[list[T], Reduction, float, float, float]:
        """Apply the factors that the library does not apply.

        :returns: the tensors, the reduction and the two factors for the library, and the factor of its result
        """
        check_factors(prescale, postscale)
        if op in (Sum, Average) and all(is_inexact(self.adapter.dtype(source)) for source in sources):
            return sources, op, prescale, postscale, 1.0
        if op is Average and postscale != 1.0:  # as a sum with a combined factor, so that integers are truncated once
            op, postscale = Sum, postscale / size
        return [self._scaled(source, prescale) for source in sources], op, 1.0, 1.0, postscale

    def _scaled(self, tensor: T, factor: float) -> T:
        """Return `tensor` times `factor`: a copy, or `tensor` itself for the factor 1."""
        return tensor if factor == 1.0 else self.adapter.scale(tensor, factor)

    def _overwritten(self, tensors: Sequence[T], results: Sequence[T]) -> list[T]:
        """End an operation in place: each result is the tensor itself, or is copied into it."""
        for tensor, result in zip(tensors, results, strict=True):
            if result is tensor:
                self.adapter.changed(tensor)
            else:
                self.adapter.overwrite(tensor, result)
        return list(tensors)


def group_of(tensors: Sequence[T]) -> list[T]:
    """Return the tensors of a group.

    :raises InvalidArgumentError: they are no list
    """
    if isinstance(tensors, (str, bytes)) or not isinstance(tensors, Iterable):
        raise errors.InvalidArgumentError(f"tensors is {tensors!r}: a group is a list of tensors")
    return list(tensors)


def check_factors(prescale: float, postscale: float) -> None:
    """Check that factors are numbers.

    :raises InvalidArgumentError: one is not
    """
    for what, factor in (("prescale_factor", prescale), ("postscale_factor", postscale)):
        if not hasattr(factor, "__float__"):
            raise errors.InvalidArgumentError(f"{what} is {factor!r}: a factor is a number")


def together(handles: Sequence[HandleNumber]) -> HandleNumber:
    """Make one handle of several; its result is a list."""
    return HandleNumber(handles, list)
