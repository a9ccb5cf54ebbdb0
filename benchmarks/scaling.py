# SPDX-License-Identifier: Apache-2.0
"""How much longer is a training step on many nodes than on one?

A step of data-parallel training without its network: it computes for a given time, in whose last two thirds (the
backward pass) the gradients of a model become ready, last layer first; each is handed to the library at once, and the
step ends when all are summed. Computing is waiting, as it is for the host beside an accelerator. The time of a
step beyond its computing is exposed communication; the efficiency is the share of the step that is computing.

Run it at several numbers of nodes, with --out naming a folder that all runs share; scaling_report.py makes the table
and the curve of what is there.
"""

import argparse
import time
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from harness import COMM, TINY, Case, main
from libraries import Hpccoll, Library, Start
from mpi4py import MPI
from shapes import resnet50

BACKWARD = 2 / 3
"""Share of the computing: two of the three matrix products of each layer."""
PATTERN = np.arange(61, dtype=np.float32)
"""Repeated in every gradient: cheap to make and to check at any size."""


class Step:
    """Gradients of these shapes, in the order in which they become ready.

    :param compute: seconds of a step
    """

    def __init__(self, shapes: list[tuple[str, tuple[int, ...]]], compute: float) -> None:
        self.gradients = {name: np.zeros(shape, np.float32) for name, shape in shapes}
        self.compute = compute
        done = list(accumulate(x.size for x in self.gradients.values()))
        self.ready = [compute * (1 - BACKWARD * (1 - part / done[-1])) for part in done]

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in self.gradients.values())

    def run(self, start: Start) -> None:
        began, waits = time.perf_counter(), []
        for (name, x), ready in zip(self.gradients.items(), self.ready, strict=True):
            sleep_until(began + ready)
            waits.append(start(name, x))
        for wait in waits:
            wait()

    def verify(self, start: Start) -> None:
        """One step whose sums are known; zeros again, for the timing."""
        for x in self.gradients.values():
            x.reshape(-1)[...] = np.resize(PATTERN, x.size) + COMM.rank
        self.run(start)
        ranks = COMM.size * (COMM.size - 1) // 2
        for name, x in self.gradients.items():
            expected = np.resize(PATTERN, x.size) * COMM.size + ranks
            wrong = np.abs(x.reshape(-1) - expected) > 1e-3 * np.abs(expected)
            assert not wrong.any(), f"{name}: {int(wrong.sum())} of {x.size} sums are wrong"
            x[...] = 0


def sleep_until(moment: float) -> None:
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


def even(parameters: int, tensors: int) -> list[tuple[str, tuple[int, ...]]]:
    bounds = [parameters * i // tensors for i in range(tensors + 1)]
    return [(f"tensor{i}", (bounds[i + 1] - bounds[i],)) for i in range(tensors)]


def nodes_of(library: Library) -> int:
    if isinstance(library, Hpccoll):
        return int(library.hpccoll.cross_size())  # counts nodes that ranks of one machine only act as
    node = COMM.Split_type(MPI.COMM_TYPE_SHARED)
    first = node.rank == 0
    node.Free()
    return int(COMM.allreduce(first))


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    shapes = even(options.parameters, options.tensors) if options.parameters else resnet50()[::-1]
    step = Step(even(1000, 4), 1e-3) if options.size == TINY else Step(shapes, options.compute)
    nodes = nodes_of(library)
    label = f"{len(step.gradients)} gradients, {step.nbytes / 1e6:.4g} MB"

    def figures(seconds: float) -> dict[str, float]:
        return {"nodes": nodes, "compute": step.compute, "efficiency": step.compute / seconds}

    for variant, start in library.starters().items():
        yield Case(
            variant, label, lambda start=start: step.run(start), lambda start=start: step.verify(start),
            step.nbytes, figures=figures,
        )  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compute",
        type=float,
        default=0.111,
        help="seconds of computing in a step (ResNet-50: 128 images on a V100)",
    )
    parser.add_argument("--parameters", type=int, help="so many in equal tensors instead of ResNet-50's")
    parser.add_argument("--tensors", type=int, default=200, help="with --parameters: in so many")


if __name__ == "__main__":
    main(__doc__ or "", cases, arguments)
