# SPDX-License-Identifier: Apache-2.0
"""How much of the communication hides behind computation that goes on meanwhile?

Like a backward pass: 20 layers, each a matrix product (NumPy, one thread) and then a gradient of 1 MiB, enqueued at
once; all are awaited at the end. Hidden is what both together take less than one after the other, as a share of
the communication. A core a rank for computing alone leaves little to hide behind: see the number of cores.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import COMM, TINY, Case, main
from libraries import Hpccoll, Library
from mpi4py import MPI

LAYERS = 20


def starter(library: Library) -> Callable[[int, np.ndarray], Any]:
    """A call that starts the sum of gradient i in place and returns something with wait()."""
    match library:
        case Hpccoll(hpccoll=hc):
            return lambda i, x: hc.allreduce_async(x, name=f"layer{i}", out=x)
    return lambda i, x: COMM.Iallreduce(MPI.IN_PLACE, x)


class Backward:
    """A matrix product and then a gradient, LAYERS times."""

    def __init__(self, library: Library, side: int, gradient: int) -> None:
        self.a = np.random.default_rng(COMM.rank).standard_normal((side, side), dtype=np.float32)
        self.out = np.empty_like(self.a)
        self.gradients = [np.zeros(gradient, np.float32) for _ in range(LAYERS)]
        self.start = starter(library)

    def compute(self) -> None:
        for _ in self.gradients:
            np.matmul(self.a, self.a, out=self.out)

    def communicate(self) -> None:
        for handle in [self.start(i, x) for i, x in enumerate(self.gradients)]:
            handle.wait()

    def both(self) -> None:
        handles = []
        for i, x in enumerate(self.gradients):
            np.matmul(self.a, self.a, out=self.out)
            handles.append(self.start(i, x))
        for handle in handles:
            handle.wait()

    def verify(self) -> None:
        for i, x in enumerate(self.gradients):
            x[:] = i + COMM.rank
        self.both()
        for i, x in enumerate(self.gradients):
            assert (x == COMM.size * i + sum(range(COMM.size))).all(), i
            x[:] = 0


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    step = Backward(library, 64, 1024) if options.size == TINY else Backward(library, 448, 1 << 18)
    medians: dict[str, float] = {}

    def remember(way: str) -> Callable[[float], dict[str, float]]:
        def figures(seconds: float) -> dict[str, float]:
            medians[way] = seconds
            return {}

        return figures

    def hidden(seconds: float) -> dict[str, float]:
        return {"hidden": (medians["compute"] + medians["communicate"] - seconds) / medians["communicate"]}

    label, size = f"{LAYERS} layers", sum(x.nbytes for x in step.gradients)
    yield Case("compute", label, step.compute, step.verify, figures=remember("compute"))
    yield Case("communicate", label, step.communicate, step.verify, size, figures=remember("communicate"))
    yield Case("both", label, step.both, step.verify, size, figures=hidden)


if __name__ == "__main__":
    main(__doc__ or "", cases)
