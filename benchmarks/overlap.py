# SPDX-License-Identifier: Apache-2.0
"""How much of the communication hides behind computation that goes on meanwhile?

Like a backward pass: 20 layers, each a matrix product (NumPy, one thread) and then a gradient of 1 MiB, enqueued at
once; all are awaited at the end. Hidden is the time that both together save against one after the
other, as a share of the communication. With no more than one core per rank there is little to hide behind.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from harness import COMM, TINY, Case, Remembered, main
from libraries import Library

LAYERS = 20


class Backward:
    """A matrix product and then a gradient, LAYERS times."""

    def __init__(self, library: Library, side: int, gradient: int) -> None:
        self.a = np.random.default_rng(COMM.rank).standard_normal((side, side), dtype=np.float32)
        self.out = np.empty_like(self.a)
        self.gradients = [np.zeros(gradient, np.float32) for _ in range(LAYERS)]
        self.start = library.starters()["fp32"]

    def compute(self) -> None:
        for _ in self.gradients:
            np.matmul(self.a, self.a, out=self.out)

    def communicate(self) -> None:
        for wait in [self.start(f"layer{i}", x) for i, x in enumerate(self.gradients)]:
            wait()

    def both(self) -> None:
        waits = []
        for i, x in enumerate(self.gradients):
            np.matmul(self.a, self.a, out=self.out)
            waits.append(self.start(f"layer{i}", x))
        for wait in waits:
            wait()

    def verify(self) -> None:
        for i, x in enumerate(self.gradients):
            x[:] = i + COMM.rank
        self.both()
        for i, x in enumerate(self.gradients):
            assert (x == COMM.size * i + sum(range(COMM.size))).all(), i
            x[:] = 0


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    step = Backward(library, 64, 1024) if options.size == TINY else Backward(library, 448, 1 << 18)
    medians = Remembered()

    def hidden(seconds: float) -> dict[str, float]:
        return {"hidden": (medians["compute"] + medians["communicate"] - seconds) / medians["communicate"]}

    label, size = f"{LAYERS} layers", sum(x.nbytes for x in step.gradients)
    yield Case("compute", label, step.compute, step.verify, figures=medians.figures("compute"))
    yield Case("communicate", label, step.communicate, step.verify, size, figures=medians.figures("communicate"))
    yield Case("both", label, step.both, step.verify, size, figures=hidden)


if __name__ == "__main__":
    main(__doc__ or "", cases)
