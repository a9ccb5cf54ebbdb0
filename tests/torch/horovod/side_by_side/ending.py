# SPDX-License-Identifier: Apache-2.0
"""Requests of one rank alone and join, after which Horovod no longer matches calls without names; and the end."""

from typing import Any

from asking import RANK, SIZE, answer, ask, hvd, tensor
from mpi4py import MPI


@ask(
    "allreduce_async", "allreduce_async_", "grouped_allreduce_async", "allgather_async", "broadcast_async",
    "alltoall_async", "reducescatter_async", "grouped_reducescatter_async",
)  # fmt: skip
def name_twice_at_the_call(name: str) -> Any:
    """Use a name twice on rank 0: the first request is in flight for sure, as the others wait at a barrier of MPI."""

    def begin() -> Any:
        x = tensor(SIZE)
        return getattr(hvd, name)(
            [x] if "grouped" in name else x, name="early", **({"root_rank": 0} if "broad" in name else {})
        )

    first = begin() if RANK == 0 else None
    second = answer(lambda: type(begin()).__name__) if RANK == 0 else None
    MPI.COMM_WORLD.Barrier()
    result = hvd.synchronize(begin() if first is None else first)
    return second, [one.tolist() for one in result] if isinstance(result, list | tuple) else result


@ask("Sum", "Average", "Max", "Product")
def join_and_allreduce(op: str) -> Any:
    late = [hvd.allreduce(tensor(4), op=getattr(hvd, op), name="late") for _ in range(2)] if RANK == SIZE - 1 else []
    return late, hvd.join()


@ask()
def join_and_barrier() -> Any:
    return hvd.barrier(), hvd.join() in range(SIZE), hvd.allreduce(tensor(4), name="after")


@ask()
def after_shutdown() -> Any:
    return hvd.shutdown(), hvd.is_initialized(), answer(hvd.rank)
