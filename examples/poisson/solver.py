# SPDX-License-Identifier: Apache-2.0
"""Conjugate gradients for the Poisson equation on a square, its rows shared among ranks (float64).

-(u_xx + u_yy) = f inside the unit square, u = 0 on its edge; five-point stencil on n x n interior points, one strip
of rows per rank. Sums over all ranks and the exchange of neighbouring strips' edge rows go through a `Ranks`, so that
the same solver runs on hpccoll and on plain MPI.

The preconditioner has two levels (Nicolaides, 1987): the diagonal, and a coarse problem of one unknown per cell of
COARSE x COARSE cells, whose right-hand side is a field summed over the ranks.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float64]
COARSE = 16


class Ranks(Protocol):
    """The operations between ranks that the solver needs."""

    rank: int
    size: int

    def scalars(self, *values: float) -> Field:
        """Return the sums of these values over the ranks."""

    def field(self, name: str, values: Field) -> Field:
        """Return the element-wise sum of an array over the ranks."""

    def fill_halo(self, around: Field) -> None:
        """Fill the first and the last row from the strips above and below; leave a row at the edge of the square."""


@dataclass
class Solution:
    strip: Field  # this rank's rows
    iterations: int
    residual: float  # norm of f - A u over the norm of f, from the recurrence


class Strip:
    """This rank's rows of the n x n grid, and the operator on them."""

    def __init__(self, n: int, rank: int, size: int) -> None:
        self.n, self.first, self.last = n, n * rank // size, n * (rank + 1) // size
        self.cells = np.arange(n) * COARSE // n  # coarse cell of each row or column
        self.around = np.zeros((self.last - self.first + 2, n + 2))  # the strip with a halo: u is 0 on the edge

    def zeros(self) -> Field:
        return np.zeros((self.last - self.first, self.n))

    def apply(self, u: Field, ranks: Ranks) -> Field:
        """Return A u; first fetch the neighbours' edge rows (the halo exchange)."""
        around = self.around
        around[1:-1, 1:-1] = u
        ranks.fill_halo(around)
        neighbours = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
        return 4.0 * u - neighbours

    def restrict(self, r: Field) -> Field:
        """Sum this strip's points over the coarse cells they lie in."""
        coarse = np.zeros((COARSE, COARSE))
        rows = self.cells[self.first : self.last]
        np.add.at(coarse, (rows[:, None], self.cells[None, :]), r)
        return coarse

    def prolong(self, coarse: Field) -> Field:
        return coarse[self.cells[self.first : self.last]][:, self.cells]


def coarse_inverse(n: int) -> Field:
    """Return the inverse of the operator seen by piecewise constant fields: small, so every rank has all of it."""
    width = np.bincount(np.arange(n) * COARSE // n, minlength=COARSE).astype(np.float64)
    steps = 2.0 * np.eye(COARSE) - np.eye(COARSE, k=1) - np.eye(COARSE, k=-1)
    sides = np.diag(width)
    return np.linalg.inv(np.kron(steps, sides) + np.kron(sides, steps))


def solve(f: Field, strip: Strip, ranks: Ranks, tolerance: float = 1e-10, limit: int = 2000) -> Solution:
    """Iterate preconditioned conjugate gradients (Hestenes and Stiefel, 1952) until |r| <= tolerance |f|.

    `f` is this rank's strip of the right-hand side, already multiplied by the mesh width squared.
    """
    coarse = coarse_inverse(strip.n)

    def precondition(r: Field) -> Field:
        total = ranks.field("coarse residual", strip.restrict(r))
        return r / 4.0 + strip.prolong((coarse @ total.ravel()).reshape(total.shape))

    u, r = strip.zeros(), f.copy()
    z = precondition(r)
    direction = z.copy()
    rz, ff = ranks.scalars(np.vdot(r, z), np.vdot(f, f))
    rr, iterations = ff, 0
    while rr > tolerance**2 * ff:
        if iterations == limit:
            raise ArithmeticError(f"no convergence in {limit} iterations: |r|/|f| is {np.sqrt(rr / ff):.1e}")
        image = strip.apply(direction, ranks)
        (curvature,) = ranks.scalars(np.vdot(direction, image))
        u += (rz / curvature) * direction
        r -= (rz / curvature) * image
        z = precondition(r)
        before, (rz, rr) = rz, ranks.scalars(np.vdot(r, z), np.vdot(r, r))
        direction = z + (rz / before) * direction
        iterations += 1
    return Solution(u, iterations, float(np.sqrt(rr / ff)))
