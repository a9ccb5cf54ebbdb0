# SPDX-License-Identifier: Apache-2.0
"""Questions about disagreements between ranks, other mistakes, and process sets."""

from collections.abc import Callable
from typing import Any

import torch
from asking import RANK, SIZE, answer, ask, hvd, tensor

# ---- what ranks do not agree on, and other mistakes -----------------------------------------------------


@ask(
    "shape",
    "dimensions",
    "type",
    "op",
    "factor",
    "broadcast shape",
    "root",
    "allgather shape",
    "alltoall shape",
)
def ranks_differ_in(what: str) -> Any:
    calls: dict[str, Callable[[], Any]] = {
        "shape": lambda: hvd.allreduce(tensor(4 + RANK), name="unlike"),
        "dimensions": lambda: hvd.allreduce(tensor(4) if RANK else tensor(2, 2), name="unlike"),
        "type": lambda: hvd.allreduce(tensor(4, dtype=("int32", "float32")[RANK > 0]), name="unlike"),
        "op": lambda: hvd.allreduce(tensor(4), op=(hvd.Sum, hvd.Max)[RANK > 0], name="unlike"),
        "factor": lambda: hvd.allreduce(tensor(4), prescale_factor=1.0 + RANK, name="unlike"),
        "broadcast shape": lambda: hvd.broadcast(tensor(4 + RANK), 0, name="unlike"),
        "root": lambda: hvd.broadcast(tensor(4), RANK, name="unlike"),
        "allgather shape": lambda: hvd.allgather(tensor(2, 2 + RANK), name="unlike"),
        "alltoall shape": lambda: hvd.alltoall(tensor(SIZE, 2 + RANK), name="unlike"),
    }
    return calls[what]()


@ask("name twice", "op and average", "no such root", "not a tensor", "splits too long", "splits too few")
def mistake(what: str) -> Any:
    calls: dict[str, Callable[[], Any]] = {
        "name twice": name_twice,
        "op and average": lambda: hvd.allreduce(tensor(4), average=True, op=hvd.Sum),
        "no such root": lambda: hvd.broadcast(tensor(4), SIZE),
        "not a tensor": lambda: hvd.allreduce([1.0, 2.0]),
        "splits too long": lambda: hvd.alltoall(tensor(SIZE), torch.full((SIZE,), 2, dtype=torch.int32)),
        "splits too few": lambda: hvd.alltoall(tensor(SIZE), torch.ones(SIZE + 1, dtype=torch.int32)),
    }
    return calls[what]()


def name_twice() -> Any:
    first = hvd.allreduce_async(tensor(4), name="twice")
    try:
        hvd.synchronize(hvd.allreduce_async(tensor(4), name="twice"))
    finally:
        hvd.synchronize(first)


# ---- process sets ---------------------------------------------------------------------------------------


@ask()
def process_sets() -> Any:
    first = hvd.add_process_set([0])
    rest = hvd.add_process_set(hvd.ProcessSet(range(1, SIZE)))
    mine = first if RANK == 0 else rest
    facts = [
        [one.process_set_id, one.ranks, one.included(), answer(one.rank), answer(one.size)] for one in (first, rest)
    ]
    root = mine.ranks[-1]
    sums = [
        hvd.allreduce(tensor(4), op=hvd.Sum, process_set=mine),
        hvd.allgather(tensor(RANK + 1), process_set=mine),
        hvd.broadcast(tensor(4), root, process_set=mine),
        hvd.alltoall(tensor(mine.size()), process_set=mine),
        hvd.reducescatter(tensor(mine.size()), process_set=mine),
        hvd.broadcast_object({"from": RANK}, root, process_set=mine),
        hvd.barrier(process_set=mine),
    ]
    outside = answer(lambda: hvd.allreduce(tensor(4), process_set=rest if RANK == 0 else first))
    again = answer(lambda: hvd.add_process_set([0]))
    removed = [hvd.remove_process_set(one) for one in (first, rest)]
    after = answer(lambda: hvd.allreduce(tensor(4), process_set=mine))
    return facts, sums, outside, again, removed, after, first.process_set_id


@ask()
def the_global_process_set() -> Any:
    whole = hvd.global_process_set
    return whole.process_set_id, whole.ranks, whole.rank(), whole.size(), whole.included()
