# SPDX-License-Identifier: Apache-2.0
"""What a World over ranks of another one costs: the median time of split, subset and cart, and of their end.

    hpccoll run -np 2 python benchmarks/sets.py

MPI's own `Comm_split` and `Free` run in turn with them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

import hpccoll

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=200)
given = parser.parse_args()
hpccoll.init()
world, comm = hpccoll.world(), MPI.COMM_WORLD
makers: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "MPI Comm_split, Free": (lambda: comm.Split(0), lambda made: made.Free()),
    "split": (lambda: world.split(0), lambda made: made.shutdown()),
    "split, a World per rank": (lambda: world.split(world.rank), lambda made: made.shutdown()),
    "subset": (lambda: world.subset(range(world.size)), lambda made: made.shutdown()),
    "cart": (lambda: world.cart([world.size]), lambda made: made.shutdown()),
}
times: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
for _ in range(given.rounds):
    for name, (make, end) in makers.items():
        world.barrier()
        began = time.perf_counter()
        made = make()
        between = time.perf_counter()
        end(made)
        times[name].append((between - began, time.perf_counter() - between))
if world.rank == 0:
    for name, both in times.items():
        make_us, end_us = (statistics.median(column) * 1e6 for column in zip(*both, strict=True))
        print(f"{name:24} made in {make_us:6.0f} us, ended in {end_us:6.0f} us")
hpccoll.shutdown()
