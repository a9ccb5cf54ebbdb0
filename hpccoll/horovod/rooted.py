# SPDX-License-Identifier: Apache-2.0
"""The functions with a root rank: reduce, gather and scatter.

Horovod does not have them; their arguments follow those of Horovod's functions.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from hpccoll.frontend.process_sets import ProcessSet, global_process_set
from hpccoll.frontend.reductions import Average, Op, choose
from hpccoll.frontend.refused import tells
from hpccoll.horovod.asynchronous import AsynchronousOperations

__all__ = ["RootedOperations"]

T = TypeVar("T")


class RootedOperations(AsynchronousOperations[T]):
    """The blocking and the asynchronous functions with a root, for tensors of type T."""

    # ---- reduce --------------------------------------------------------------------------------------

    @tells
    def reduce(
        self,
        tensor: T,
        *,
        op: Op | None = Average,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T | None:
        """Combine the tensors of all ranks into a new tensor on the root, which autograd does not record.

        :param tensor: the same shape and dtype on all ranks
        :param op: Average (default), Sum, Min, Max or Product
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :returns: on the root the result, of the shape and dtype of `tensor`; None on the other ranks
        :raises HpccollError: see allreduce
        """
        result: T | None = self.requests.reduce(
            name, tensor, choose(op), root_rank, prescale_factor, postscale_factor, process_set, waits=True
        ).wait()
        return result

    @tells
    def reduce_async(
        self,
        tensor: T,
        *,
        op: Op | None = Average,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Begin to combine the tensors of all ranks into a new tensor on the root.

        :param tensor: the same shape and dtype on all ranks
        :param op: Average (default), Sum, Min, Max or Product
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :param prescale_factor: factor of each rank's tensor
        :param postscale_factor: factor of the result
        :returns: a handle; synchronize() returns the new tensor on the root, and None on the other ranks
        :raises InvalidArgumentError: (a ValueError) the root or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.reduce(name, tensor, choose(op), root_rank, prescale_factor, postscale_factor, process_set)

    # ---- gather --------------------------------------------------------------------------------------

    @tells
    def gather(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T | None:
        """Concatenate the tensors of all ranks along their first dimension, on the root.

        Autograd does not record it.

        :param tensor: the first dimension may differ between ranks, the others may not; a tensor without dimensions
            counts as one row
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: on the root the rows of all ranks, in the order of the ranks; None on the other ranks
        :raises HpccollError: see allreduce
        """
        result: T | None = self.requests.gather(name, tensor, root_rank, process_set, waits=True).wait()
        return result

    @tells
    def gather_async(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to concatenate the tensors of all ranks along their first dimension, on the root.

        :param tensor: the first dimension may differ between ranks, the others may not; a tensor without dimensions
            counts as one row
        :param root_rank: global rank of the root, also within a process set
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns the new tensor on the root, and None on the other ranks
        :raises InvalidArgumentError: (a ValueError) the root or this rank is not in the process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.gather(name, tensor, root_rank, process_set)

    # ---- scatter -------------------------------------------------------------------------------------

    @tells
    def scatter(
        self,
        tensor: T,
        root_rank: int,
        splits: T | Sequence[int] | np.ndarray | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Give each rank a part of the root's rows.

        It can be differentiated if the tensors of all ranks require a gradient; the root's gets all of the gradient.

        :param tensor: the rows on the root; the other ranks give a tensor of the same dtype and dimensions but for the
            first, whose values and number of rows are ignored
        :param root_rank: global rank of the root, also within a process set
        :param splits: on the root, how many rows go to each rank of the set, in order; default: each rank gets
            n // size of n rows, and the first n % size ranks get one more. It is ignored on the other ranks
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: this rank's rows
        :raises HpccollError: see allreduce
        """
        return self.run_scatter(tensor, root_rank, splits, name, process_set)

    @tells
    def scatter_async(
        self,
        tensor: T,
        root_rank: int,
        splits: T | Sequence[int] | np.ndarray | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Begin to give each rank a part of the root's rows.

        :param tensor: the rows on the root; the other ranks give a tensor of the same dtype and dimensions but for the
            first, whose values and number of rows are ignored
        :param root_rank: global rank of the root, also within a process set
        :param splits: on the root, how many rows go to each rank of the set, in order; default: each rank gets
            n // size of n rows, and the first n % size ranks get one more. It is ignored on the other ranks
        :param name: matches the calls of different ranks, in any order; calls without a name match by their order
        :param process_set: the ranks that take part
        :returns: a handle; synchronize() returns this rank's rows
        :raises InvalidArgumentError: (a ValueError) the splits do not fit, or the root or this rank is not in the
            process set
        :raises UnsupportedError: (a ValueError) the library does not know the dtype, or cannot move the memory
        """
        return self.requests.scatter(name, tensor, root_rank, splits, process_set)

    def run_scatter(
        self,
        tensor: T,
        root_rank: int,
        splits: T | Sequence[int] | np.ndarray | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> T:
        """Return this rank's rows."""
        result: T = self.requests.scatter(name, tensor, root_rank, splits, process_set, waits=True).wait()
        return result
