# SPDX-License-Identifier: Apache-2.0
"""A shallow layer of air on a rotating plane whose ends touch: the simulation, each rank with a part of the grid.

The equations are those of Vallis, Atmospheric and Oceanic Fluid Dynamics (2nd edition, 2017), chapter 3, with a little
viscosity. Central differences of second order, and the Runge-Kutta scheme of Shu and Osher (1988) with three
stages. All quantities are without units: the mean depth, gravity and the distance of grid points are 1, so waves travel
one cell in a unit of time.

A step needs three rows of the neighbours, one per stage. So one exchange of a halo of three cells serves a whole step.
Every cell is computed by the same operations on any number of ranks, so the fields are equal bit for bit.
"""

import numpy as np
from numpy.typing import NDArray

import hpccoll
import hpccoll.io

Fields = NDArray[np.float64]

HALO = 3
TIME_STEP = 0.5
ROTATION = 0.1  # the Coriolis parameter: an eddy in balance is ten cells wide
VISCOSITY = 0.02
NAMES = ("depth", "wind to the east", "wind to the north")
"""The fields; the depth is the deviation from its mean."""


def tendency(q: Fields) -> Fields:
    """Return the rates of change of the fields, of all cells but the outermost."""
    h, u, v = q
    centre = (slice(1, -1), slice(1, -1))

    def east(x: Fields) -> Fields:
        return 0.5 * (x[1:-1, 2:] - x[1:-1, :-2])

    def north(x: Fields) -> Fields:
        return 0.5 * (x[2:, 1:-1] - x[:-2, 1:-1])

    def spread(x: Fields) -> Fields:
        around = x[1:-1, 2:] + x[1:-1, :-2] + x[2:, 1:-1] + x[:-2, 1:-1]
        return VISCOSITY * (around - 4.0 * x[centre])

    depth = 1.0 + h
    return np.stack([
        -(east(depth * u) + north(depth * v)),
        spread(u) - u[centre] * east(u) - v[centre] * north(u) + ROTATION * v[centre] - east(h),
        spread(v) - u[centre] * east(v) - v[centre] * north(v) - ROTATION * u[centre] - north(h),
    ])  # fmt: skip


def inner(q: Fields, width: int = 1) -> Fields:
    """Return the fields without the outermost cells."""
    return q[:, width:-width, width:-width]


class Atmosphere:
    """This rank's part of the fields, with a halo.

    :param world: its ranks share a grid of `cells` x `cells`
    """

    def __init__(self, world: hpccoll.World, cells: int) -> None:
        self.cart = world.cart([1, 0, 0], periods=True)  # the first dimension is that of the fields
        self.cells, places = cells, self.cart.dims[1:]
        if any(cells % n or cells // n < HALO for n in places):
            raise ValueError(f"{cells} cells cannot be divided among {places[0]} x {places[1]} ranks")
        self.rows, self.columns = (cells // n for n in places)
        self.offset = (0, self.cart.coords[1] * self.rows, self.cart.coords[2] * self.columns)
        """The place of this part's first cell in the whole grid."""
        self.q: Fields = np.zeros((len(NAMES), self.rows + 2 * HALO, self.columns + 2 * HALO))
        self.fill_halo = self.cart.halo_exchange_init(self.q, (0, HALO, HALO))

    @property
    def own(self) -> Fields:
        """The cells of this rank."""
        return inner(self.q, HALO)

    def part(self) -> hpccoll.io.Part:
        """This rank's cells, for a checkpoint."""
        return hpccoll.io.Part.of_cart(self.cart, self.q, (0, HALO, HALO))

    def stir(self, seed: int) -> None:
        """Begin with random hills and valleys in still air: waves run from them, and leave eddies."""
        random = np.random.default_rng(seed)
        angle = 2 * np.pi / self.cells
        y, x = (angle * (self.offset[d] + np.arange(n)) for d, n in ((1, self.rows), (2, self.columns)))
        self.own[:] = 0.0
        for _ in range(24):
            k, m = random.integers(-4, 5, 2)
            size, phase = 0.05 * random.normal(), random.uniform(0, 2 * np.pi)
            self.own[0] += size * np.cos(m * y[:, None] + k * x + phase)

    def step(self) -> None:
        self.fill_halo()
        q = self.q
        first = inner(q) + TIME_STEP * tendency(q)
        second = 0.75 * inner(q, 2) + 0.25 * (inner(first) + TIME_STEP * tendency(first))
        self.own[:] = self.own / 3.0 + 2.0 / 3.0 * (inner(second) + TIME_STEP * tendency(second))
