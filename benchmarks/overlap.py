# SPDX-License-Identifier: Apache-2.0
"""How much of the communication hides behind computation that goes on meanwhile?

Like a backward pass: 20 layers, each a matrix product (NumPy, one thread) and then a gradient of 1 MiB, enqueued at
once; all are awaited at the end. Hidden is what both together take less than one after the other, as a share of
the communication. A core a rank for computing alone leaves little to hide behind: see the number of cores.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from harness import COMM, TINY, Case, main
from libraries import Hpccoll, Library
from mpi4py import MPI

LAYERS = 20


def starter(library: Library) -> Callable[[int, np.ndarray], object]:
    """A call that starts the sum of gradient i in place and returns something with wait()."""
    match library:
        case Hpccoll(hpccoll=hc):
            return lambda i, x: hc.allreduce_async(x, name=f"layer{i}", out=x)
    return lambda i, x: COMM.Iallreduce(MPI.IN_PLACE, x)


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    side = 64 if options.size == TINY else 448
    a = np.random.default_rng(COMM.rank).standard_normal((side, side), dtype=np.float32)
    out = np.empty_like(a)
    gradients = [np.zeros(1024 if options.size == TINY else 1 << 18, np.float32) for _ in range(LAYERS)]
    start = starter(library)
    medians: dict[str, float] = {}

    def compute() -> None:
        for _ in gradients:
            np.matmul(a, a, out=out)

    def communicate() -> None:
        for handle in [start(i, x) for i, x in enumerate(gradients)]:
            handle.wait()

    def both() -> None:
        handles = []
        for i, x in enumerate(gradients):
            np.matmul(a, a, out=out)
            handles.append(start(i, x))
        for handle in handles:
            handle.wait()

    def verify() -> None:
        for i, x in enumerate(gradients):
            x[:] = i + COMM.rank
        both()
        for i, x in enumerate(gradients):
            assert (x == COMM.size * i + sum(range(COMM.size))).all(), i
            x[:] = 0

    def remember(way: str) -> Callable[[float], dict[str, float]]:
        def figures(seconds: float) -> dict[str, float]:
            medians[way] = seconds
            return {}

        return figures

    def hidden(seconds: float) -> dict[str, float]:
        return {"hidden": (medians["compute"] + medians["communicate"] - seconds) / medians["communicate"]}

    size = sum(x.nbytes for x in gradients)
    label = f"{LAYERS} layers"
    yield Case("compute", label, compute, verify, figures=remember("compute"))
    yield Case("communicate", label, communicate, verify, size, figures=remember("communicate"))
    yield Case("both", label, both, verify, size, figures=hidden)


if __name__ == "__main__":
    main(__doc__ or "", cases)
