# SPDX-License-Identifier: Apache-2.0
"""Horovod's blocking functions for any framework.

A framework with automatic differentiation overrides the run_ methods: each gets everything about one call and returns
the results, and every differentiable function goes through one of them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from hpccoll.frontend import names
from hpccoll.frontend.calls import Allreduce, Reducescatter
from hpccoll.frontend.compression import Compressor, NoneCompressor, check_compressor, packed
from hpccoll.frontend.handles import HandleNumber, synchronize, wait_for_all
from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Average, Op, choose
from hpccoll.frontend.refused import each, tells
from hpccoll.frontend.requests import group_of
from hpccoll.horovod.rooted import RootedOperations

__all__ = ["Operations"]

T = TypeVar("T")


class Operations(RootedOperations[T]):
    """The blocking and the asynchronous functions for tensors of type T."""

    # ---- allreduce -----------------------------------------------------------------------------------

    @tells
    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: Compressor = NoneCompressor,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Combine the tensors of all ranks into a new tensor.

        :param tensor: the same shape and dtype on all ranks; in host memory or a GPU's, strided or not
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :param process_set: the ranks that take part
        :returns: the result, of the shape and dtype of `tensor`
        :raises InvalidArgumentError: (a ValueError) an argument is wrong, or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        :raises MismatchError: (a RuntimeError) the ranks called with different arguments under one name
        :raises HorovodInternalError: (a RuntimeError) a rank or the transport failed; a new World may work
        """
        call = Allreduce(name, choose(op, average), prescale_factor, postscale_factor, process_set, group=False)
        return self._compressed(call, [tensor], compression)[0]

    @tells
    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Combine the tensors of all ranks in place.

        :param tensor: the same shape and dtype on all ranks; the result overwrites it
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :param process_set: the ranks that take part
        :returns: `tensor`
        :raises HpccollError: see allreduce
        """
        result: T = self.requests.allreduce(
            name, [tensor], choose(op, average), prescale_factor, postscale_factor, process_set, group=False,
            in_place=True, waits=True,
        ).wait()  # fmt: skip
        return result

    @tells
    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: Compressor = NoneCompressor,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """Allreduce several tensors that are agreed, fused and finished together, into new tensors.

        :param tensors: as many on all ranks, each with the same shape and dtype
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: of the whole group
        :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensors
        :param postscale_factor: factor of the results
        :param process_set: the ranks that take part
        :returns: the results, in the order of `tensors`
        :raises HpccollError: see allreduce
        """
        call = Allreduce(name, choose(op, average), prescale_factor, postscale_factor, process_set, group=True)
        return self._compressed(call, group_of(tensors), compression)

    @tells
    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """Allreduce several tensors, in place, that are agreed, fused and finished together.

        :param tensors: as many on all ranks, each with the same shape and dtype; the results overwrite them
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: of the whole group
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensors
        :param postscale_factor: factor of the results
        :param process_set: the ranks that take part
        :returns: the list of these tensors
        :raises HpccollError: see allreduce
        """
        result: list[T] = self.requests.allreduce(
            name, group_of(tensors), choose(op, average), prescale_factor, postscale_factor, process_set, group=True,
            in_place=True, waits=True,
        ).wait()  # fmt: skip
        return result

    def _compressed(self, call: Allreduce, tensors: Sequence[T], compression: Compressor) -> list[T]:
        """Compress, reduce, decompress; the engine converts on the wire if it supports the compressor."""
        if compression is NoneCompressor:
            return self.run_allreduce(call, tensors)
        check_compressor(compression)
        sent = packed(compression, tensors, self.adapter.dtype)
        return sent.unpack(self.run_allreduce(dataclasses.replace(call, wire=sent.wire), sent.tensors))

    def run_allreduce(self, call: Allreduce, tensors: Sequence[T]) -> list[T]:
        """Return the results of one allreduce; without `call.group` there is one tensor."""
        result = self.requests.begin(call, tensors, in_place=False, waits=True).wait()
        return result if call.group else [result]

    # ---- allgather -----------------------------------------------------------------------------------

    @tells
    def allgather(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """Concatenate the tensors of all ranks along their first dimension.

        :param tensor: the first dimension may differ between ranks, the others may not; a tensor without dimensions
            counts as one row
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: the rows of all ranks, in the order of the ranks
        :raises HpccollError: see allreduce
        """
        return self.run_allgather(tensor, name, process_set)

    @tells
    def grouped_allgather(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> list[T]:
        """Allgather each of several tensors.

        :param tensors: as many on all ranks
        :param name: of the whole group
        :param process_set: the ranks that take part
        :returns: the results, in the order of `tensors`
        :raises HpccollError: see allreduce
        """
        return self.run_grouped_allgather(group_of(tensors), name, process_set)

    def run_allgather(self, tensor: T, name: str | None, process_set: ProcessSet) -> T:
        """Return the result of one allgather."""
        result: T = self.requests.allgather(name, tensor, process_set, waits=True).wait()
        return result

    def run_grouped_allgather(self, tensors: Sequence[T], name: str | None, process_set: ProcessSet) -> list[T]:
        """Return the results of several allgathers."""
        result: list[T] = synchronize(self.grouped_allgather_async(tensors, name, process_set))
        return result

    # ---- broadcast -----------------------------------------------------------------------------------

    @tells
    def broadcast(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Give the root's tensor to all ranks, as a new tensor.

        :param tensor: the values on the root; the same shape and dtype on the other ranks
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: the root's values
        :raises HpccollError: see allreduce
        """
        return self.run_broadcast(tensor, root_rank, name, process_set)

    @tells
    def broadcast_(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Give the root's tensor to all ranks, in place.

        :param tensor: the values on the root; on the other ranks the same shape and dtype, and the result overwrites it
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: `tensor`
        :raises HpccollError: see allreduce
        """
        result: T = self.requests.broadcast(name, tensor, root_rank, process_set, in_place=True, waits=True).wait()
        return result

    def run_broadcast(self, tensor: T, root_rank: int, name: str | None, process_set: ProcessSet) -> T:
        """Return the result of one broadcast."""
        result: T = self.requests.broadcast(name, tensor, root_rank, process_set, in_place=False, waits=True).wait()
        return result

    # ---- alltoall ------------------------------------------------------------------------------------

    @tells
    def alltoall(
        self,
        tensor: T,
        splits: T | Sequence[int] | np.ndarray | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Send a part of the rows to each rank.

        :param tensor: all dimensions but the first are the same on all ranks
        :param splits: how many rows go to each rank of the set, in order; default: as many to each
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: the rows received, in the order of the ranks; if `splits` is given, a pair of them and how many rows
            came from each rank (a tensor of the dtype of `splits`, or int32)
        :raises HpccollError: see allreduce
        """
        output, rows = self.run_alltoall(tensor, splits, name, process_set)
        return output if splits is None else (output, rows)

    def run_alltoall(
        self, tensor: T, splits: T | Sequence[int] | np.ndarray | None, name: str | None, process_set: ProcessSet
    ) -> tuple[T, T]:
        """Return the rows received, and how many came from each rank."""
        result: tuple[T, T] = self.requests.alltoall(name, tensor, splits, process_set, waits=True).wait()
        return result

    # ---- reducescatter -------------------------------------------------------------------------------

    @tells
    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        compression: Compressor = NoneCompressor,
        op: Op | None = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """Combine the tensors of all ranks; each rank gets its share of the rows.

        :param tensor: the same shape and dtype on all ranks. Each rank gets n // size of n rows, and the first n % size
            ranks get one more
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
        :param op: Average (default), Sum, Min, Max or Product
        :param process_set: the ranks that take part
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :returns: this rank's rows of the result
        :raises HpccollError: see allreduce
        """
        call = Reducescatter([name], choose(op), prescale_factor, postscale_factor, process_set)
        return self._compressed_rows(call, [tensor], compression)[0]

    @tells
    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        compression: Compressor = NoneCompressor,
        op: Op | None = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """Reducescatter each of several tensors.

        :param tensors: as many on all ranks, each with the same shape and dtype
        :param name: of the whole group
        :param compression: what floating-point values travel as: Compression.none, .fp16, .bf16, or a Compressor
        :param op: Average (default), Sum, Min, Max or Product
        :param process_set: the ranks that take part
        :param prescale_factor: factor of each rank's tensors
        :param postscale_factor: factor of the results
        :returns: this rank's rows of each result, in the order of `tensors`
        :raises HpccollError: see allreduce
        """
        group = group_of(tensors)
        if not group:
            return []
        members = names.members(name, len(group))
        call = Reducescatter(members, choose(op), prescale_factor, postscale_factor, process_set)
        return self._compressed_rows(call, group, compression)

    def _compressed_rows(self, call: Reducescatter, tensors: Sequence[T], compression: Compressor) -> list[T]:
        check_compressor(compression)
        pairs = [compression.compress(tensor) for tensor in tensors]  # a reducescatter has no conversion of its own
        results = self.run_reducescatter(call, [compressed for compressed, _ in pairs])
        return [compression.decompress(x, context) for x, (_, context) in zip(results, pairs, strict=True)]

    def run_reducescatter(self, call: Reducescatter, tensors: Sequence[T]) -> list[T]:
        """Return the results of reducescatters, one per name and tensor."""
        return wait_for_all(self.begin_reducescatter(call, tensors, waits=True))

    def begin_reducescatter(self, call: Reducescatter, tensors: Sequence[T], *, waits: bool) -> list[HandleNumber]:
        """Begin reducescatters, one per name and tensor."""
        return each(
            self.requests.reducescatter, call.names, tensors, call.process_set, call.op, call.prescale, call.postscale,
            waits=waits,
        )  # fmt: skip
