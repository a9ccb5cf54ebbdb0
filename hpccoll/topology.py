# SPDX-License-Identifier: Apache-2.0
"""Cartesian topologies: which ranks are neighbours on a grid, and what neighbours exchange.

All messages of a Cart are the library's own (HC_P2P_LIBRARY), so they never meet those of the program.
"""

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from hpccoll import _core, agreements, arrays, errors
from hpccoll.halo import PROC_NULL, Halo, check_array, widths_of
from hpccoll.outside import check_inside

__all__ = ["Cart", "check_grid", "dims_create"]

HALO, ALLGATHER, ALLTOALL, FIRST_PLAN = range(4)
"""The numbers of a Cart's exchanges, for their tags; each plan has a different number."""

DIMS = 64
"""The most dimensions that a grid or an array can have."""

TAGS = 2 * DIMS
"""Tags of one exchange: two for each dimension."""


def dims_create(size: int, dims: int | Sequence[int]) -> tuple[int, ...]:
    """Divide ranks among the dimensions of a grid, as evenly as possible (MPI_Dims_create).

        >>> hpccoll.dims_create(12, 2)
        (4, 3)
        >>> hpccoll.dims_create(12, [0, 2, 0])
        (3, 2, 2)

    :param size: the number of ranks
    :param dims: the number of dimensions; or the extents that are given, with 0 for those that are to be chosen
    :returns: the extents, whose product is `size`; those chosen do not increase
    :raises InvalidArgumentError: the given extents do not divide `size`
    """
    size = operator.index(size)
    given = [0] * operator.index(dims) if isinstance(dims, int | np.integer) else [operator.index(n) for n in dims]
    chosen = _core.dims_create(size, given)
    if chosen is None:
        raise errors.InvalidArgumentError(f"dims_create({size}, {dims!r}): the extents given do not divide {size}")
    return chosen


def check_grid(
    size: int, dims: Iterable[int], periods: bool | Iterable[bool]
) -> tuple[list[int], list[bool], Exception | None]:
    """Complete the description of a grid for at most `size` ranks.

    :returns: the extents, the periods, and the error if there is no such grid, which the ranks raise together
    """
    try:
        given = list(dims)
        extents = [operator.index(n) for n in given]
        if 0 in extents:
            extents = list(dims_create(size, extents))
        around = [bool(p) for p in (periods if isinstance(periods, Iterable) else [periods] * len(extents))]
        fits = 0 < len(extents) <= DIMS and min(extents) > 0 and prod(extents) <= size
        if not fits or len(around) != len(extents):
            text = f"cart({given!r}, {periods!r}): no grid of the {size} ranks of the World"
            return [], [], errors.InvalidArgumentError(text)
    except (TypeError, ValueError) as error:  # dims_create raises InvalidArgumentError, which is a ValueError
        return [], [], error
    return extents, around, None


def _to_send(x: Any, out: np.ndarray | None) -> np.ndarray:
    """Return the values of `x`, contiguous: a copy where `out` shares its memory.

    A large array is read when its receiver comes, so what comes in from one side would go out to the other one.
    """
    values = np.asarray(arrays.adopt(x)[0], order="C")
    return values.copy() if out is not None and np.may_share_memory(values, out) else values


class Cart:
    """Ranks on a grid, in row-major order as in MPI; `World.cart()` makes one.

    >>> cart = hpccoll.world().cart([2, 1], periods=[True, False])
    >>> assert cart.coords == (hpccoll.rank(), 0)
    >>> assert cart.shift(0) == (1 - hpccoll.rank(), 1 - hpccoll.rank())
    >>> assert cart.shift(1) == (hpccoll.PROC_NULL, hpccoll.PROC_NULL)
    """

    def __init__(self, world: Any, dims: Sequence[int], periods: Sequence[bool]) -> None:
        """Number the ranks of a World on a grid; for World.cart().

        :param world: a World of `prod(dims)` ranks, whose messages are this Cart's alone
        :param dims: the extent of each dimension
        :param periods: for each dimension: do its ends touch?
        """
        self.world = world
        """The World of the ranks on the grid; its ranks are the Cart's."""
        self.dims = tuple(dims)
        """The extent of each dimension."""
        self.periods = tuple(periods)
        """For each dimension whether its ends touch."""
        self._grid = _core.Grid(dims, periods)
        self._plans = FIRST_PLAN

    @property
    def _core(self) -> _core.Set:
        core: _core.Set = self.world.core
        return core

    @property
    def rank(self) -> int | Any:
        """The number of this process in the Cart, from 0; None where it is not on the grid."""
        return self._core.rank

    @property
    def size(self) -> int:
        """The number of ranks on the grid; 0 for a process that is not on it."""
        return self._core.size

    def __bool__(self) -> bool:
        """Say whether this process is on the grid."""
        return self.size > 0

    @property
    def coords(self) -> tuple[int, ...]:
        """The coordinates of this rank."""
        return self.coords_of(self._member())

    def _member(self) -> int:
        check_inside(self._core, "cart")
        return int(self.rank)

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Give the coordinates of a rank of the Cart.

        :raises InvalidArgumentError: there is no such rank
        """
        check_inside(self._core, "coords_of")
        if not 0 <= operator.index(rank) < self.size:
            raise errors.InvalidArgumentError(f"rank is {rank}: the grid has ranks 0 to {self.size - 1}")
        return self._grid.coords(rank)

    def rank_of(self, coords: Sequence[int]) -> int:
        """Give the rank at coordinates; beyond the end of a dimension that is periodic they go on at its beginning.

        :returns: the rank, or PROC_NULL beyond the end of a dimension that is not periodic
        """
        if len(coords) != len(self.dims):
            raise errors.InvalidArgumentError(f"coords {tuple(coords)} for {len(self.dims)} dimensions")
        return self._grid.rank([operator.index(at) for at in coords])

    def shift(self, dimension: int, displacement: int = 1) -> tuple[int, int]:
        """Give the ranks that a shift by `displacement` receives from and sends to (MPI_Cart_shift).

        :param dimension: from 0
        :param displacement: in ranks; negative: downwards
        :returns: source and destination, for `cart.world.sendrecv`; PROC_NULL where there is none
        """
        if not 0 <= operator.index(dimension) < len(self.dims):
            raise errors.InvalidArgumentError(f"dimension {dimension} of {len(self.dims)}")
        return self._grid.shift(self._member(), dimension, operator.index(displacement))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The neighbour below and the one above in each dimension: MPI's order. PROC_NULL where there is none."""
        return tuple(rank for dimension in range(len(self.dims)) for rank in self.shift(dimension))

    # ---- neighbourhood collectives --------------------------------------------------------------------

    def neighbor_allgather(self, x: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Give an array to all neighbours, and collect theirs (MPI_Neighbor_allgather).

        :param x: an array of the same shape and dtype on all ranks
        :param out: takes the result, contiguous; it may share memory with `x`. None: a new array
        :returns: of shape `(2 * len(dims), *x.shape)`, in the order of `neighbours`. Where there is no neighbour the
            values of `out` stay; in a new array they are zeros
        :raises ResultSizeError: `out`, or the array of a neighbour, has another size
        """
        x = _to_send(x, out)
        sides = 2 * len(self.dims)
        return self._with_neighbours(ALLGATHER, [x] * sides, (sides, *x.shape), out)

    def neighbor_alltoall(self, x: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Send a row to each neighbour, and receive a row from each (MPI_Neighbor_alltoall).

        :param x: an array of `2 * len(dims)` rows in the order of `neighbours`, of one shape and dtype on all ranks
        :param out: takes the result, contiguous; `x` itself: in place; None: a new array
        :returns: of the shape of `x`; rows as for `neighbor_allgather`
        :raises ResultSizeError: `out`, or the row of a neighbour, has another size
        """
        x = _to_send(x, out)
        if not x.ndim or len(x) != 2 * len(self.dims):
            raise errors.InvalidArgumentError(
                f"x has shape {x.shape}: neighbor_alltoall takes {2 * len(self.dims)} rows, one per neighbour"
            )
        return self._with_neighbours(ALLTOALL, [x[at : at + 1] for at in range(len(x))], x.shape, out)

    def _with_neighbours(
        self, number: int, rows: Sequence[np.ndarray], shape: tuple[int, ...], out: np.ndarray | None
    ) -> np.ndarray:
        dtype = rows[0].dtype
        if out is None:
            out = np.zeros(shape, dtype)
        arrays.adopt_out(out)
        if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
            raise errors.ResultSizeError(
                f"out has shape {out.shape} and dtype {out.dtype}: it must be contiguous, {shape} of {dtype}"
            )
        self._core.exchange(
            [
                (peer, TAGS * number + at, TAGS * number + (at ^ 1), rows[at], out[at : at + 1])
                for at, peer in enumerate(self.neighbours)
                if peer != PROC_NULL
            ]
        )
        return out

    # ---- halos ----------------------------------------------------------------------------------------

    def halo_exchange(self, array: np.ndarray, width: int | Sequence[int] = 1, *, corners: bool = True) -> None:
        """Fill the halo of an array from the neighbours: their cells next to the common side. All ranks call it.

        Dimension d of `array` is divided along dimension d of the Cart; further dimensions are whole on each rank. The
        outermost `width` cells of a divided dimension are the halo, the cells inside belong to this rank. A halo where
        the grid ends keeps its values, which are the program's boundary conditions; with `corners`, its cells that a
        neighbour has, too, are the neighbour's.

            >>> cart = hpccoll.world().cart([2])
            >>> u = np.zeros(5)
            >>> u[1:-1] = cart.rank + 1
            >>> cart.halo_exchange(u)
            >>> hpccoll.allgather_object(u.tolist())
            [[0.0, 1.0, 1.0, 1.0, 2.0], [1.0, 2.0, 2.0, 2.0, 0.0]]

        :param array: a writable NumPy array of any dtype, contiguous or not, with at least as many dimensions as the
            Cart. Its extents may differ between ranks where the common sides do not
        :param width: cells of the halo on each side, for all dimensions of the Cart or for each one; 0: none
        :param corners: also fill the corners and edges, which come from diagonal neighbours. They travel with the faces
            of later dimensions, so that the dimensions are exchanged one after the other
        :raises InvalidArgumentError: `array` is too small for its halo, is not writable, or `width` does not fit
        :raises ResultSizeError: the neighbour's side has another size
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        self._member()
        check_array(array, len(self.dims))
        _core.halo_exchange(self._core, self._grid, array, widths_of(width, len(self.dims)), corners, HALO)

    def halo_exchange_init(self, array: np.ndarray, width: int | Sequence[int] = 1, *, corners: bool = True) -> Halo:
        """Make a plan of a `halo_exchange`, with the same arguments, that may be run any number of times.

        All ranks call it, in the same order. What they give is compared here, once, and the memory that strided sides
        need is allocated.

        :returns: the plan: `halo()` runs it; `halo.start()` and `halo.wait()` let the program compute meanwhile
        :raises MismatchError: the ranks' dtype, `width`, `corners` or common sides differ; the same text on all ranks
        :raises InvalidArgumentError: as for `halo_exchange`
        """
        number = self._plans
        self._plans += 1
        self._member()
        ndim, refused = len(self.dims), None
        widths: tuple[int, ...] = ()
        try:
            check_array(array, ndim)
            widths = widths_of(width, ndim)
            said = str((array.dtype, widths, corners))
        except (errors.InvalidArgumentError, errors.UnsupportedError) as error:
            refused, said = error, str(error)
        with agreements.whole():
            plan = _core.halo_plan(self._core, self._grid, array, widths, corners, number, said, refused is not None)
        if refused:
            raise refused
        assert plan is not None
        return plan

    def shutdown(self) -> None:
        """End the Cart's World, when all its ranks have called this."""
        if self:
            self.world.shutdown()
