# SPDX-License-Identifier: Apache-2.0
"""Solve a Poisson problem with hpccoll's allreduce, check it against plain MPI and against the exact solution.

mpirun -np 4 python examples/poisson/solve.py --points 256
HPCCOLL_DETERMINISTIC=1 mpirun -np 4 python examples/poisson/solve.py    # bit for bit, twice the same
"""

import argparse
import hashlib
import time

import numpy as np
from mpi4py import MPI
from solver import Field, Solution, Strip, solve

import hpccoll


class HpccollSums:
    def scalars(self, *values: float) -> Field:
        return hpccoll.allreduce(np.array(values))  # unnamed: matched by the order of the calls, as in MPI

    def field(self, name: str, values: Field) -> Field:
        return hpccoll.allreduce(values, name=name)


class MpiSums:
    def scalars(self, *values: float) -> Field:
        return self.field("", np.array(values))

    def field(self, name: str, values: Field) -> Field:
        total = np.empty_like(values)
        MPI.COMM_WORLD.Allreduce(values, total)
        return total


def right_hand_side(strip: Strip) -> tuple[Field, Field]:
    """f times the mesh width squared, and the solution, on this rank's rows."""
    width = 1.0 / (strip.n + 1)
    inside = width * np.arange(1, strip.n + 1)
    y, x = inside[strip.first : strip.last, None], inside[None, :]
    wave, hill_x, hill_y = np.sin(np.pi * x) * np.sin(2 * np.pi * y), x * (1 - x), y * (1 - y)
    return width**2 * (5 * np.pi**2 * wave + 2 * hill_x + 2 * hill_y), wave + hill_x * hill_y


def main() -> None:
    parser = argparse.ArgumentParser(description="Distributed conjugate gradients on hpccoll and on plain MPI.")
    parser.add_argument("--points", type=int, default=192, help="interior points per side")
    parser.add_argument("--checksum", action="store_true", help="print one of the solution's bits")
    options = parser.parse_args()

    hpccoll.init()
    strip = Strip(options.points, MPI.COMM_WORLD)
    f, exact = right_hand_side(strip)

    def timed(sums: HpccollSums | MpiSums) -> tuple[Solution, float]:
        start = time.perf_counter()
        solution = solve(f, strip, sums)
        return solution, time.perf_counter() - start

    (ours, seconds), (again, _), (plain, plain_seconds) = (
        timed(HpccollSums()),
        timed(HpccollSums()),
        timed(MpiSums()),
    )
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
        print(f"plain MPI  {plain.iterations} iterations, residual {plain.residual:.1e}, {plain_seconds:.3f} s")
        print(f"largest error against the exact solution {error:.1e}, against plain MPI {against_mpi:.1e}")
        print(f"solved twice: {'different bits' if repeat else 'the same bits'}")
        if options.checksum:
            print(f"checksum {hashlib.sha256(whole.tobytes()).hexdigest()}")
    hpccoll.shutdown()
    if against_mpi > 1e-8 or error > 10 / options.points**2:
        raise SystemExit("the solutions differ by more than rounding and the mesh allow")


if __name__ == "__main__":
    main()
