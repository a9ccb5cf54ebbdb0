# SPDX-License-Identifier: Apache-2.0
"""How long do 50 iterations of conjugate gradients take, on 128 x 128 and 512 x 512 points, one strip of rows per rank?

Each iteration exchanges the edge rows with both neighbours and sums two scalar products, each right before its use.
The forms differ in these calls only: blocking calls, and persistent ones.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import numpy as np
from harness import COMM, TINY, Case, main
from libraries import Hpccoll, Library, Mpi
from mpi4py import MPI
from numpy.typing import NDArray
from small import started

Field = NDArray[np.float64]
Call = Callable[[], object]
ITERATIONS = 50


class Strip:
    """This rank's rows of the search direction, with a row of each neighbour around them; and the summed numbers."""

    def __init__(self, n: int, rank: int, size: int) -> None:
        self.n, self.rows = n, n * (rank + 1) // size - n * rank // size
        self.padded = np.zeros((self.rows + 2, n + 2))
        self.direction = self.padded[1:-1, 1:-1]
        whole = [self.padded[row] for row in (0, 1, -2, -1)]
        above = rank - 1 if rank > 0 else MPI.PROC_NULL
        below = rank + 1 if rank + 1 < size else MPI.PROC_NULL
        self.edges = ((whole[0], whole[1], above), (whole[3], whole[2], below))  # received row, sent row, neighbour
        self.sum = np.zeros(1)
        self.f = np.ones((self.rows, n)) / (n + 1) ** 2

    def solve(self, halo: Call, total: Call) -> float:
        """Run the iterations with these calls; return the residual."""
        u, r = np.zeros_like(self.f), self.f.copy()
        self.direction[:] = r
        rr = self.all_of(r, r, total)
        for _ in range(ITERATIONS):
            halo()
            p = self.padded
            image = 4.0 * self.direction
            for neighbours in (p[:-2, 1:-1], p[2:, 1:-1], p[1:-1, :-2], p[1:-1, 2:]):
                image -= neighbours
            step = rr / self.all_of(self.direction, image, total)
            u += step * self.direction
            r -= step * image
            before, rr = rr, self.all_of(r, r, total)
            self.direction *= rr / before
            self.direction += r
        return rr

    def all_of(self, a: Field, b: Field, total: Call) -> float:
        self.sum[0] = np.einsum("ij,ij->", a, b)  # no BLAS, whose threads would be measured
        total()
        return float(self.sum[0])


def of_hpccoll(hc: ModuleType, s: Strip) -> dict[str, tuple[Call, Call]]:
    calls, plans = [], []
    for taken, given, other in s.edges:
        if other != MPI.PROC_NULL:
            calls.append(partial(hc.sendrecv, given, other, taken, other))
            plans += [hc.recv_init(taken, other), hc.send_init(given, other)]

    def exchange() -> None:
        hc.start_all(plans)
        hc.wait_all(plans)

    return {
        "blocking": (lambda: [call() for call in calls], partial(hc.allreduce, s.sum, out=s.sum)),
        "persistent": (exchange, hc.allreduce_init(s.sum, out=s.sum)),
    }


def of_mpi(s: Strip) -> dict[str, tuple[Call, Call]]:
    requests = [COMM.Recv_init(taken, other) for taken, _, other in s.edges]
    requests += [COMM.Send_init(given, other) for _, given, other in s.edges]

    def exchange() -> None:
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)

    def blocking() -> None:
        for taken, given, other in s.edges:
            COMM.Sendrecv(given, other, recvbuf=taken, source=other)

    total = partial(COMM.Allreduce, MPI.IN_PLACE, s.sum)
    persistent = started({"": "Allreduce_init"}, MPI.IN_PLACE, s.sum).get("", total)
    return {"blocking": (blocking, total), "persistent": (exchange, persistent)}


def verify(n: int, run: Callable[[], float]) -> None:
    """Check that all ranks together get the same residual as a single process."""
    alone = Strip(n, 0, 1).solve(int, int)
    residual = run()
    assert np.isclose(residual, alone, rtol=1e-6), (residual, alone)


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    for n in [32] if options.size == TINY else [128, 512]:
        strip = Strip(n, COMM.rank, COMM.size)
        match library:
            case Hpccoll():
                forms = of_hpccoll(library.hpccoll, strip)
            case Mpi():
                forms = of_mpi(strip)
            case _:
                return
        for form, (halo, total) in forms.items():
            run = partial(strip.solve, halo, total)
            yield Case(form, f"{n} x {n}", run, partial(verify, n, run))


if __name__ == "__main__":
    main(__doc__ or "", cases)
