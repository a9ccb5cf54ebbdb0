# SPDX-License-Identifier: Apache-2.0
"""The operations whose result on a rank is made of the ranks before it: `scan` and `exscan`.

Every rank of the World calls them. The shared arguments are described in `hpccoll.collectives`.
"""

from collections.abc import Sequence
from typing import Any, Unpack, overload

import numpy as np

from hpccoll import _core
from hpccoll.array_types import Array, ArrayT, Op, Scaled
from hpccoll.reductions import SUM, Reduction
from hpccoll.user_reductions import UserReduction

__all__ = ["Prefix"]

Handle = _core.Handle


class Prefix:
    """The operations in the order of the ranks, as methods of a World."""

    core: _core.Set

    @overload
    def scan(self, x: ArrayT, op: Op = SUM, *, out: ArrayT | None = None, **more: Unpack[Scaled]) -> ArrayT: ...
    @overload
    def scan(
        self, x: Sequence[ArrayT], op: Op = SUM, *, out: Sequence[ArrayT] | None = None, **more: Unpack[Scaled]
    ) -> list[ArrayT]: ...
    @overload
    def scan(self, x: complex, op: Op = SUM, *, out: None = None, **more: Unpack[Scaled]) -> np.number: ...
    @overload
    def scan(
        self, x: Sequence[object], op: Op = SUM, *, out: Sequence[Array] | None = None, **more: Unpack[Scaled]
    ) -> list[Any]: ...
    def scan(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Any:
        """Combine the arrays of the ranks up to this one, element by element.

            >>> here = hpccoll.scan(np.full(2, 1 + hpccoll.rank()))
            >>> hpccoll.allgather_object(here.tolist())  # rank 0's values, and those of ranks 0 and 1 together
            [[1, 1], [3, 3]]

        :param x: an array with the same shape and dtype on all ranks; or a list of arrays, which is a group: its arrays
            are agreed, fused and completed together, and the result is a list
        :param op: one of the reductions but for AVERAGE. The ranks are combined in their order
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes the result, of the shape and dtype of `x`; `x` itself: in place; None: a new array; for a
            group: a list of arrays
        :param prescale: each input is multiplied by this number, for SUM of float and complex types
        :param postscale: the result is multiplied by this number, likewise
        :returns: the reduction over rank 0 to this rank, as an array of the shape and dtype of `x`, or `out`; for a
            group a list. A rank that has joined does not count
        :raises MismatchError: the ranks' calls differ in shape, dtype, op or factors
        :raises UnsupportedError: `op` is AVERAGE, or it or a factor is not defined for the dtype
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking("scan", x, name, out, op, None, prescale, postscale)

    @overload
    def scan_async(
        self, x: ArrayT, op: Op = SUM, *, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> Handle[ArrayT]: ...
    @overload
    def scan_async(
        self, x: Sequence[ArrayT], op: Op = SUM, *, out: Sequence[ArrayT] | None = None, **more: Unpack[Scaled]
    ) -> Handle[list[ArrayT]]: ...
    @overload
    def scan_async(
        self, x: complex, op: Op = SUM, *, out: None = None, **more: Unpack[Scaled]
    ) -> Handle[np.number]: ...
    @overload
    def scan_async(
        self, x: Sequence[object], op: Op = SUM, *, out: Sequence[Array] | None = None, **more: Unpack[Scaled]
    ) -> Handle[list[Any]]: ...
    def scan_async(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle:
        """Begin a `scan`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("scan", x, name, out, False, op, None, None, prescale, postscale)

    @overload
    def exscan(
        self, x: ArrayT, op: Reduction = SUM, *, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> ArrayT: ...
    @overload
    def exscan(
        self, x: Sequence[ArrayT], op: Reduction = SUM, *, out: Sequence[ArrayT] | None = None, **more: Unpack[Scaled]
    ) -> list[ArrayT]: ...
    @overload
    def exscan(self, x: complex, op: Reduction = SUM, *, out: None = None, **more: Unpack[Scaled]) -> np.number: ...
    @overload
    def exscan(self, x: ArrayT, op: UserReduction, *, out: ArrayT, **more: Unpack[Scaled]) -> ArrayT: ...
    @overload
    def exscan(self, x: ArrayT, op: UserReduction, *, out: None = None, **more: Unpack[Scaled]) -> ArrayT | None: ...
    @overload
    def exscan(
        self, x: Sequence[object], op: Op = SUM, *, out: Sequence[Array] | None = None, **more: Unpack[Scaled]
    ) -> list[Any]: ...
    def exscan(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Any:
        """Combine the arrays of the ranks before this one, element by element.

            >>> rows = 3 + hpccoll.rank()
            >>> first = hpccoll.exscan(rows)  # where this rank's rows begin among those of all ranks
            >>> hpccoll.allgather_object(int(first))
            [0, 3]

        :param x: an array with the same shape and dtype on all ranks; or a list of arrays, which is a group: its arrays
            are agreed, fused and completed together, and the result is a list
        :param op: one of the reductions but for AVERAGE. The ranks are combined in their order
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes the result, of the shape and dtype of `x`; `x` itself: in place; None: a new array; for a
            group: a list of arrays
        :param prescale: each input is multiplied by this number, for SUM of float and complex types
        :param postscale: the result is multiplied by this number, likewise
        :returns: the reduction over rank 0 to the rank before this one, as an array of the shape and dtype of `x`, or
            `out`; for a group a list. Rank 0 gets the value that changes nothing: 0 for SUM, 1 for PRODUCT, the largest
            value of the dtype for MIN, with the largest index for MINLOC. A UserReduction has no such value: there rank
            0's `out` stays as it is, and without `out` the result is None. A rank that has joined does not count
        :raises MismatchError: the ranks' calls differ in shape, dtype, op or factors
        :raises UnsupportedError: `op` is AVERAGE, or it or a factor is not defined for the dtype
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking("exscan", x, name, out, op, None, prescale, postscale)

    @overload
    def exscan_async(
        self, x: ArrayT, op: Reduction = SUM, *, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> Handle[ArrayT]: ...
    @overload
    def exscan_async(
        self, x: Sequence[ArrayT], op: Reduction = SUM, *, out: Sequence[ArrayT] | None = None, **more: Unpack[Scaled]
    ) -> Handle[list[ArrayT]]: ...
    @overload
    def exscan_async(
        self, x: complex, op: Reduction = SUM, *, out: None = None, **more: Unpack[Scaled]
    ) -> Handle[np.number]: ...
    @overload
    def exscan_async(self, x: ArrayT, op: UserReduction, *, out: ArrayT, **more: Unpack[Scaled]) -> Handle[ArrayT]: ...
    @overload
    def exscan_async(
        self, x: ArrayT, op: UserReduction, *, out: None = None, **more: Unpack[Scaled]
    ) -> Handle[ArrayT | None]: ...
    @overload
    def exscan_async(
        self, x: Sequence[object], op: Op = SUM, *, out: Sequence[Array] | None = None, **more: Unpack[Scaled]
    ) -> Handle[list[Any]]: ...
    def exscan_async(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle:
        """Begin an `exscan`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("exscan", x, name, out, False, op, None, None, prescale, postscale)
