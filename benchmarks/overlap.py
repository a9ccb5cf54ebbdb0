# SPDX-License-Identifier: Apache-2.0
"""After which share of a training step do the requests for gradients begin? The trace has the times."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import results
from mpi4py import MPI

import hpccoll

COMM = MPI.COMM_WORLD
STEPS = 15
FIRST, HALF = 0.35, 0.7
"""The latest share for the first request, and for half of the requests."""

Step = Callable[[], Any]


def layers(size: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the weights of 24 dense layers, and a batch."""
    count, side, batch = (4, 16, 4) if size == "tiny" else (24, 768, 96)
    random = np.random.default_rng(0)
    weights = [random.standard_normal((side, side), np.float32) * 0.03 for _ in range(count)]
    return weights, random.standard_normal((batch, side), np.float32)


def measure(step: Step) -> list[tuple[float, float]]:
    """Return the times of each step's first and middle request, as shares of the step, about 0.1 ms late."""
    loop = hpccoll.world().core.loop
    shares = []
    for i in range(STEPS + 3):
        COMM.Barrier()
        before, _ = loop.trace()
        begin = time.monotonic_ns()
        step()
        end = time.monotonic_ns()
        _, records = loop.trace(before)
        at = sorted(record["time"] for record in records if record["kind"] == "enqueue" and record["time"] >= begin)
        if i >= 3:
            shares.append(((at[0] - begin) / (end - begin), (at[len(at) // 2] - begin) / (end - begin)))
    return shares


def report(shares: list[tuple[float, float]], records: list[results.Record]) -> None:
    """Print the medians on rank 0, and add them to `records`."""
    first, half = (statistics.median(column) for column in zip(*shares, strict=True))
    if COMM.rank == 0:
        met = "as demanded" if first <= FIRST and half <= HALF else "LATER than demanded"
        print(
            f"gradients of 24 dense layers are asked for at {first:.2f} of the step (the first) and {half:.2f} (half), "
            f"at most {FIRST} and {HALF}: {met}",
            flush=True,
        )
        records.append({"case": "asked for, share of the step", "first": first, "half": half})
