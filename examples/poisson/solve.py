# SPDX-License-Identifier: Apache-2.0
"""Solve a Poisson problem with hpccoll, check it against mpi4py and against the exact solution, and compare the times.

mpirun -np 4 python examples/poisson/solve.py --points 256
HPCCOLL_DETERMINISTIC=1 mpirun -np 4 python examples/poisson/solve.py    # bit for bit, twice the same
"""

import argparse
import hashlib
import time

import numpy as np
from mpi4py import MPI
from solver import Field, Ranks, Solution, Strip, solve

import hpccoll

REPEATS = 3


class OnHpccoll:
    """The operations of a step as plans, which the ranks agree on once."""

    def __init__(self, around: Field) -> None:
        self.rank, self.size = hpccoll.rank(), hpccoll.size()
        self.halo = hpccoll.world().cart([self.size]).halo_exchange_init(around)
        self.values = [np.zeros(n) for n in (1, 2)]
        self.sums = [hpccoll.allreduce_init(values, out=values) for values in self.values]

    def scalars(self, *values: float) -> Field:
        at = len(values) - 1
        self.values[at][:] = values
        total: Field = self.sums[at]()
        return total.copy()

    def field(self, name: str, values: Field) -> Field:
        return hpccoll.allreduce(values, name=name)

    def fill_halo(self, around: Field) -> None:
        self.halo()


class OnMpi:
    def __init__(self, comm: MPI.Comm) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
        self.below = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL

    def scalars(self, *values: float) -> Field:
        return self.field("", np.array(values))

    def field(self, name: str, values: Field) -> Field:
        total = np.empty_like(values)
        self.comm.Allreduce(values, total)
        return total

    def fill_halo(self, around: Field) -> None:
        self.comm.Sendrecv(around[1], self.above, recvbuf=around[-1], source=self.below)
        self.comm.Sendrecv(around[-2], self.below, recvbuf=around[0], source=self.above)


def right_hand_side(strip: Strip) -> tuple[Field, Field]:
    """Return f times the mesh width squared, and the solution, on this rank's rows."""
    width = 1.0 / (strip.n + 1)
    inside = width * np.arange(1, strip.n + 1)
    y, x = inside[strip.first : strip.last, None], inside[None, :]
    wave, hill_x, hill_y = np.sin(np.pi * x) * np.sin(2 * np.pi * y), x * (1 - x), y * (1 - y)
    return width**2 * (5 * np.pi**2 * wave + 2 * hill_x + 2 * hill_y), wave + hill_x * hill_y


def main() -> None:
    parser = argparse.ArgumentParser(description="Distributed conjugate gradients on hpccoll and on mpi4py.")
    parser.add_argument("--points", type=int, default=192, help="interior points per side")
    parser.add_argument("--checksum", action="store_true", help="print one of the solution's bits")
    options = parser.parse_args()

    hpccoll.init()
    strip = Strip(options.points, hpccoll.rank(), hpccoll.size())
    f, exact = right_hand_side(strip)

    def timed(ranks: Ranks) -> tuple[Solution, float]:
        start = time.perf_counter()
        solution = solve(f, strip, ranks)
        return solution, time.perf_counter() - start

    on_hpccoll, on_mpi = OnHpccoll(strip.around), OnMpi(MPI.COMM_WORLD)
    runs = [(timed(on_hpccoll), timed(on_mpi)) for _ in range(REPEATS)]  # in turn, so that other load affects both
    (ours, _), (plain, _) = runs[0]
    again = runs[1][0][0]
    seconds, plain_seconds = (min(run[which][1] for run in runs) for which in (0, 1))
    differences = [
        float(np.abs(ours.strip - exact).max()),
        float(np.abs(ours.strip - plain.strip).max()),
        float((ours.strip != again.strip).any()),
    ]
    error, against_mpi, repeat = hpccoll.allreduce(np.array(differences), hpccoll.MAX)
    whole = hpccoll.allgather(ours.strip)  # strips may have one row more or less
    if hpccoll.rank() == 0:
        print(f"{options.points}^2 points, {hpccoll.size()} ranks")
        print(f"hpccoll    {ours.iterations} iterations, residual {ours.residual:.1e}, {seconds:.3f} s")
        print(f"mpi4py     {plain.iterations} iterations, residual {plain.residual:.1e}, {plain_seconds:.3f} s")
        print(f"best of {REPEATS} runs by turns: hpccoll takes {seconds / plain_seconds:.2f} times as long as mpi4py")
        print(f"largest error against the exact solution {error:.1e}, against mpi4py {against_mpi:.1e}")
        print(f"solved twice: {'different bits' if repeat else 'the same bits'}")
        if options.checksum:
            print(f"checksum {hashlib.sha256(whole.tobytes()).hexdigest()}")
    hpccoll.shutdown()
    if against_mpi > 1e-8 or error > 10 / options.points**2:
        raise SystemExit("the solutions differ by more than rounding and the mesh allow")


if __name__ == "__main__":
    main()
