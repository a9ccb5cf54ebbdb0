# SPDX-License-Identifier: Apache-2.0
"""Horovod's asynchronous functions for any framework: each returns a handle for poll() and synchronize().

Until synchronize() has returned, the tensors belong to the library: do not read or change them. They may lie in host
memory or in a GPU's, be strided or not, and have any dtype that the operation is defined for. What one rank can see by
itself is raised by the call; what the ranks disagree on is raised by synchronize().
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from hpccoll import errors
from hpccoll.frontend import names
from hpccoll.frontend.adapter import SparseParts, TensorAdapter
from hpccoll.frontend.handles import synchronize
from hpccoll.frontend.process_sets import ProcessSet, global_process_set, world_of
from hpccoll.frontend.reductions import Average, Op, Sum, choose
from hpccoll.frontend.refused import each, tells
from hpccoll.frontend.requests import Requests, group_of, together

__all__ = ["AsynchronousOperations"]

T = TypeVar("T")


class AsynchronousOperations(Generic[T]):
    """The asynchronous functions for tensors of type T."""

    def __init__(self, adapter: TensorAdapter[T]) -> None:
        self.adapter, self.requests = adapter, Requests(adapter)

    # ---- reductions ----------------------------------------------------------------------------------

    @tells
    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to combine the tensors of all ranks into a new tensor.

        :param tensor: the same shape and dtype on all ranks
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the new tensor
        :raises InvalidArgumentError: (a ValueError) an argument is wrong, or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.allreduce(
            name, [tensor], choose(op, average), prescale_factor, postscale_factor, process_set, group=False,
            in_place=False,
        )  # fmt: skip

    @tells
    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to combine the tensors of all ranks in place.

        :param tensor: the same shape and dtype on all ranks; the result overwrites it
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns `tensor`
        :raises InvalidArgumentError: (a ValueError) an argument is wrong, or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.allreduce(
            name, [tensor], choose(op, average), prescale_factor, postscale_factor, process_set, group=False,
            in_place=True,
        )  # fmt: skip

    @tells
    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin an allreduce of several tensors that are agreed, fused and finished together, into new tensors.

        The other parameters and the errors are those of allreduce_async.

        :param tensors: as many on all ranks, each with the same shape and dtype
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: of the whole group
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensors
        :param postscale_factor: factor of the results
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the list of new tensors
        :raises InvalidArgumentError: see allreduce_async
        :raises UnsupportedError: see allreduce_async
        """
        return self.requests.allreduce(
            name, group_of(tensors), choose(op, average), prescale_factor, postscale_factor, process_set, group=True,
            in_place=False,
        )  # fmt: skip

    @tells
    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Op | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin an allreduce of several tensors, in place, that are agreed, fused and finished together.

        :param tensors: as many on all ranks, each with the same shape and dtype; the results overwrite them
        :param average: deprecated: True for op=Average, False for op=Sum
        :param name: of the whole group
        :param op: Average (default), Sum, Adasum, Min, Max or Product
        :param prescale_factor: factor of each rank's tensors
        :param postscale_factor: factor of the results
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the list of these tensors
        :raises InvalidArgumentError: see allreduce_async
        :raises UnsupportedError: see allreduce_async
        """
        return self.requests.allreduce(
            name, group_of(tensors), choose(op, average), prescale_factor, postscale_factor, process_set, group=True,
            in_place=True,
        )  # fmt: skip

    @tells
    def sparse_allreduce_async(
        self, tensor: T, name: str | None, op: Op | None, process_set: ProcessSet = global_process_set
    ) -> Callable[[], T]:
        """Begin to add up sparse tensors, or to average them: the entries of all ranks are gathered.

        :param tensor: sparse (COO), the same shape and dtype on all ranks
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param op: Average or Sum
        :param process_set: the ranks that take part
        :returns: a function without arguments that waits and returns the sum: sparse, equal indices not yet added up
        :raises InvalidArgumentError: (a ValueError) `op` is neither Average nor Sum, or the tensor is not sparse
        """
        adapter, own = self.adapter, choose(op)
        if own not in (Average, Sum):
            raise errors.InvalidArgumentError(f"sparse_allreduce of {name!r}: op is {own.name}, not Average or Sum")
        if not adapter.is_sparse(tensor):
            raise errors.InvalidArgumentError(f"sparse_allreduce of {name!r}: the tensor is not sparse: use allreduce")
        parts = adapter.sparse_parts(tensor, coalesce=False)
        indices = self.allgather_async(parts.indices, names.part(name, "indices"), process_set)
        values = self.allgather_async(parts.values, names.part(name, "values"), process_set)
        divisor = world_of(process_set).size if own is Average else 1

        def wait() -> T:
            gathered = synchronize(values)
            total = adapter.divide(gathered, divisor) if divisor > 1 else gathered
            gathered_parts = SparseParts(synchronize(indices), total)
            return adapter.from_sparse(gathered_parts, adapter.shape(tensor), coalesce=False)

        return wait

    @tells
    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: Op | None = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Begin to combine the tensors of all ranks; each rank gets its share of the rows.

        :param tensor: the same shape and dtype on all ranks. Each rank gets n // size of n rows, and the first n % size
            ranks get one more
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param op: Average (default), Sum, Min, Max or Product
        :param process_set: the ranks that take part
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :returns: a handle; synchronize() returns the new tensor
        :raises InvalidArgumentError: (a ValueError) an argument is wrong, or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.reducescatter(name, tensor, choose(op), prescale_factor, postscale_factor, process_set)

    @tells
    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: Op | None = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Begin a reducescatter of each of several tensors.

        :param tensors: as many on all ranks, each with the same shape and dtype
        :param name: of the whole group
        :param op: Average (default), Sum, Min, Max or Product
        :param process_set: the ranks that take part
        :param prescale_factor: factor of each rank's tensors
        :param postscale_factor: factor of the results
        :returns: a handle; synchronize() returns the list of new tensors
        :raises InvalidArgumentError: see reducescatter_async
        :raises UnsupportedError: see reducescatter_async
        """
        own, group = choose(op), group_of(tensors)
        members = names.members(name, len(group))
        begin = self.requests.reducescatter
        return together(each(begin, members, group, process_set, own, prescale_factor, postscale_factor))

    # ---- movements -----------------------------------------------------------------------------------

    @tells
    def allgather_async(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
        """Begin to concatenate the tensors of all ranks along their first dimension.

        :param tensor: the first dimension may differ between ranks, the others may not; a tensor without dimensions
            counts as one row
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the new tensor
        :raises InvalidArgumentError: (a ValueError) this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.allgather(name, tensor, process_set)

    @tells
    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Begin an allgather of each of several tensors.

        :param tensors: as many on all ranks
        :param name: of the whole group
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the list of new tensors
        :raises InvalidArgumentError: see allgather_async
        :raises UnsupportedError: see allgather_async
        """
        group = group_of(tensors)
        return together(each(self.requests.allgather, names.members(name, len(group)), group, process_set))

    @tells
    def broadcast_async(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to give the root's tensor to all ranks, as a new tensor.

        :param tensor: the values on the root; the same shape and dtype on the other ranks
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the new tensor
        :raises InvalidArgumentError: (a ValueError) the root or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.broadcast(name, tensor, root_rank, process_set, in_place=False)

    @tells
    def broadcast_async_(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to give the root's tensor to all ranks, in place.

        :param tensor: the values on the root; on the other ranks the same shape and dtype, and the result overwrites it
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns `tensor`
        :raises InvalidArgumentError: see broadcast_async
        :raises UnsupportedError: see broadcast_async
        """
        return self.requests.broadcast(name, tensor, root_rank, process_set, in_place=True)

    @tells
    def alltoall_async(
        self,
        tensor: T,
        splits: T | Sequence[int] | np.ndarray | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to send a part of the rows to each rank.

        :param tensor: all dimensions but the first are the same on all ranks
        :param splits: how many rows go to each rank of the set, in order; default: as many to each
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the rows received, in the order of the ranks, and how many came from
            each rank
        :raises InvalidArgumentError: (a ValueError) the splits do not fit, or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.alltoall(name, tensor, splits, process_set)
