# SPDX-License-Identifier: Apache-2.0
"""The operations in which one rank, the root, has another part than the others: `reduce`, `gather` and `scatter`.

Every rank of the World calls them. The shared arguments are described in `hpccoll.collectives`.
"""

from collections.abc import Sequence
from typing import Any, Unpack, overload

import numpy as np

from hpccoll import _core, objects
from hpccoll.array_types import Array, ArrayT, Named, Op, Scaled, T
from hpccoll.reductions import SUM

__all__ = ["Rooted"]

Handle = _core.Handle


class Rooted:
    """The operations with a root, as methods of a World."""

    core: _core.Set

    @overload
    def reduce(
        self, x: ArrayT, *, op: Op = SUM, root: int = 0, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> ArrayT | None: ...
    @overload
    def reduce(
        self,
        x: Sequence[ArrayT],
        *,
        op: Op = SUM,
        root: int = 0,
        out: Sequence[ArrayT] | None = None,
        **more: Unpack[Scaled],
    ) -> list[ArrayT] | None: ...
    @overload
    def reduce(
        self, x: complex, *, op: Op = SUM, root: int = 0, out: None = None, **more: Unpack[Scaled]
    ) -> np.number | None: ...
    @overload
    def reduce(
        self,
        x: Sequence[object],
        *,
        op: Op = SUM,
        root: int = 0,
        out: Sequence[Array] | None = None,
        **more: Unpack[Scaled],
    ) -> list[Any] | None: ...
    def reduce(
        self,
        x: Any,
        *,
        op: Op = SUM,
        root: int = 0,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Any:
        """Combine the arrays of all ranks, element by element. The root gets the result.

            >>> total = hpccoll.reduce(np.ones(3), root=0)
            >>> hpccoll.allgather_object(None if total is None else total.tolist())  # on rank 0, and on rank 1
            [[2.0, 2.0, 2.0], None]

        :param x: an array with the same shape and dtype on all ranks; or a list of arrays, which is a group: its arrays
            are agreed, fused and completed together, and the result is a list
        :param op: one of the reductions. AVERAGE divides by the number of ranks in the World, joined ranks included
        :param root: the rank, in this World, that gets the result
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: on the root, takes the result, of the shape and dtype of `x`; `x` itself: in place; None: a new
            array; for a group a list of arrays. Other ranks' `out` is not touched
        :param prescale: each input is multiplied by this number, for SUM and AVERAGE of float and complex types
        :param postscale: the result is multiplied by this number, likewise
        :returns: on the root an array of the shape and dtype of `x`, or `out`, for a group a list; None on the other
            ranks
        :raises MismatchError: the ranks' calls differ in shape, dtype, root, op or factors
        :raises RootJoinedError: the root has joined
        :raises UnsupportedError: `op` or a factor is not defined for the dtype
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking("reduce", x, name, out, op, root, prescale, postscale)

    @overload
    def reduce_async(
        self, x: ArrayT, *, op: Op = SUM, root: int = 0, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> Handle[ArrayT | None]: ...
    @overload
    def reduce_async(
        self,
        x: Sequence[ArrayT],
        *,
        op: Op = SUM,
        root: int = 0,
        out: Sequence[ArrayT] | None = None,
        **more: Unpack[Scaled],
    ) -> Handle[list[ArrayT] | None]: ...
    @overload
    def reduce_async(
        self, x: complex, *, op: Op = SUM, root: int = 0, out: None = None, **more: Unpack[Scaled]
    ) -> Handle[np.number | None]: ...
    @overload
    def reduce_async(
        self,
        x: Sequence[object],
        *,
        op: Op = SUM,
        root: int = 0,
        out: Sequence[Array] | None = None,
        **more: Unpack[Scaled],
    ) -> Handle[list[Any] | None]: ...
    def reduce_async(
        self,
        x: Any,
        *,
        op: Op = SUM,
        root: int = 0,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle:
        """Begin a `reduce`, with the same arguments; the Handle's `wait()` returns the result."""
        core = self.core
        return core.collective("reduce", x, name, out, False, op, root, None, prescale, postscale)

    @overload
    def gather(
        self, x: complex | np.generic, root: int = 0, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> np.ndarray | None: ...
    @overload
    def gather(
        self, x: ArrayT, root: int = 0, *, out: ArrayT | None = None, **more: Unpack[Named]
    ) -> ArrayT | None: ...
    @overload
    def gather(
        self, x: Sequence[object], root: int = 0, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> np.ndarray | None: ...
    def gather(self, x: Any, root: int = 0, *, name: str | None = None, out: Any = None) -> Any:
        """Concatenate the arrays of all ranks along their first dimension. The root gets the result.

            >>> rows = 1 + hpccoll.rank()  # rank 0 has one row, rank 1 has two
            >>> all_rows = hpccoll.gather(np.full((rows, 2), hpccoll.rank()), root=1)
            >>> hpccoll.allgather_object(None if all_rows is None else all_rows.tolist())
            [None, [[0, 0], [1, 1], [1, 1]]]

        :param x: an array; the number of rows (the first dimension) may differ between ranks, the other dimensions and
            the dtype may not. An array without dimensions, or a number, counts as one row
        :param root: the rank, in this World, that gets the result
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: on the root, takes the result and has its shape and dtype; None: a new array. Other ranks' `out` is
            not touched
        :returns: on the root the rows of rank 0, then those of rank 1, and so on; a rank that has joined contributes no
            rows. None on the other ranks. `Handle.rows()` of the asynchronous form says on the root how many rows came
            from each rank
        :raises MismatchError: the ranks' arrays differ in dtype or in a dimension other than the first, or the roots
            differ
        :raises RootJoinedError: the root has joined
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result. Where only the number of rows is wrong,
            which is known when all ranks have told theirs, all ranks raise, and nothing is written
        :raises OutOfMemoryError: the root has no memory for the result; all ranks raise, and the World goes on
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking_rows("gather", x, name, out, root)

    @overload
    def gather_async(
        self, x: complex | np.generic, root: int = 0, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> Handle[np.ndarray | None]: ...
    @overload
    def gather_async(
        self, x: ArrayT, root: int = 0, *, out: ArrayT | None = None, **more: Unpack[Named]
    ) -> Handle[ArrayT | None]: ...
    @overload
    def gather_async(
        self, x: Sequence[object], root: int = 0, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> Handle[np.ndarray | None]: ...
    def gather_async(
        self,
        x: Any,
        root: int = 0,
        *,
        name: str | None = None,
        out: Any = None,
    ) -> Handle:
        """Begin a `gather`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("gather", x, name, out, False, root=root)

    @overload
    def scatter(
        self,
        x: ArrayT | None,
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        out: ArrayT,
        **more: Unpack[Named],
    ) -> ArrayT: ...
    @overload
    def scatter(
        self, x: ArrayT, root: int = 0, splits: Sequence[int] | None = None, *, out: None = None, **more: Unpack[Named]
    ) -> ArrayT: ...
    @overload
    def scatter(
        self,
        x: Sequence[object],
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        out: np.ndarray | None = None,
        **more: Unpack[Named],
    ) -> np.ndarray: ...
    def scatter(
        self,
        x: Any,
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        name: str | None = None,
        out: Any = None,
    ) -> Any:
        """Give each rank a part of the root's rows.

            >>> x = np.arange(6).reshape(3, 2) if hpccoll.rank() == 0 else np.empty((0, 2), int)
            >>> rows = hpccoll.scatter(x, root=0, splits=[1, 2])
            >>> hpccoll.allgather_object(rows.tolist())
            [[[0, 1]], [[2, 3], [4, 5]]]

        :param x: on the root, an array of at least one dimension. On the other ranks an array with the root's dtype and
            its dimensions but for the first: its values and its number of rows are ignored. Or None there, if `out` is
            given, which says the same
        :param root: the rank, in this World, whose rows are given
        :param splits: on the root, the number of rows for each rank: the first `splits[0]` rows go to rank 0, the next
            `splits[1]` to rank 1, and so on. None: of n rows each of p ranks gets `n // p`, and each of the first `n %
            p` ranks one more. It is ignored on the other ranks
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes this rank's rows and has their shape and dtype; None: a new array
        :returns: this rank's rows, or `out`; the rows of a rank that has joined are dropped
        :raises MismatchError: the ranks' arrays differ in dtype or in a dimension other than the first, or the roots
            differ
        :raises RootJoinedError: the root has joined
        :raises InvalidArgumentError: `splits` do not fit, or another argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of this rank's rows. Where only the number of rows is
            wrong, which only the root knows before, all ranks raise, and nothing is written
        :raises OutOfMemoryError: a rank has no memory for its rows; all ranks raise, and the World goes on
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking_rows("scatter", x, name, out, root, splits)

    @overload
    def scatter_async(
        self,
        x: ArrayT | None,
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        out: ArrayT,
        **more: Unpack[Named],
    ) -> Handle[ArrayT]: ...
    @overload
    def scatter_async(
        self, x: ArrayT, root: int = 0, splits: Sequence[int] | None = None, *, out: None = None, **more: Unpack[Named]
    ) -> Handle[ArrayT]: ...
    @overload
    def scatter_async(
        self,
        x: Sequence[object],
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        out: np.ndarray | None = None,
        **more: Unpack[Named],
    ) -> Handle[np.ndarray]: ...
    def scatter_async(
        self,
        x: Any,
        root: int = 0,
        splits: Sequence[int] | None = None,
        *,
        name: str | None = None,
        out: Any = None,
    ) -> Handle:
        """Begin a `scatter`, with the same arguments; the Handle's `wait()` returns this rank's rows."""
        return self.core.collective("scatter", x, name, out, False, root=root, splits=splits)

    def gather_object(self, obj: T, root: int = 0, *, name: str | None = None) -> list[T] | None:
        """Collect a Python object from each rank on one rank, the root. They travel as pickle makes them.

            >>> texts = hpccoll.gather_object(f"rank {hpccoll.rank()}", root=1)
            >>> hpccoll.broadcast_object(texts, root=1)
            ['rank 0', 'rank 1']

        :param obj: the object of this rank
        :param root: the rank, in this World, that gets them
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :returns: on the root a list of copies, in the order of the ranks; a rank that has joined has no object in it.
            None on the other ranks
        :raises ObjectError: pickle refuses an object, with the same text on all ranks; or the root cannot unpickle one
        :raises RootJoinedError: the root has joined
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return objects.gather(self.core, obj, root, name)

    def scatter_object(
        self,
        objs: Sequence[T] | None,
        root: int = 0,
        *,
        name: str | None = None,
    ) -> T:
        """Give each rank one of the root's Python objects. They travel as pickle makes them.

            >>> mine = hpccoll.scatter_object(["a", "b"] if hpccoll.rank() == 0 else None, root=0)
            >>> hpccoll.allgather_object(mine)
            ['a', 'b']

        :param objs: on the root a sequence with one object for each rank; it is ignored on other ranks
        :param root: the rank, in this World, whose objects are given
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :returns: a copy of this rank's object, on the root as well
        :raises ObjectError: pickle refuses an object, with the same text on all ranks; or this rank cannot unpickle it
        :raises RootJoinedError: the root has joined
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        mine: T = objects.scatter(self.core, objs, root, name)
        return mine
