# SPDX-License-Identifier: Apache-2.0
"""Join, after which Horovod no longer matches calls without names, and the end."""

from typing import Any

from asking import RANK, SIZE, answer, ask, hvd, tensor


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
