# SPDX-License-Identifier: Apache-2.0
"""The operations. Each has a blocking form, and a form NAME_async that returns a Handle at once.

Each is a method of every World, `world.allreduce(x)`, and a function of the package: `hpccoll.allreduce(x)` is the
method of the World of `init()`. Every rank of the World calls an operation. The arguments that many of them share:

- `x`: a NumPy array, or anything with the buffer protocol or DLPack in host memory, contiguous or strided. Python
  numbers become NumPy arrays, and so do lists of numbers where a list is no group. In the memory of a GPU: a CuPy
  array, a CUDA tensor, or anything with `__cuda_array_interface__` or DLPack, in the order of its stream. The library
  owns the array until the operation is finished: do not write to it before.
- `out`: the array that takes the result, contiguous or strided; `out=x` works in place. By default the result is a new
  array of the same kind as `x`. While an asynchronous call is in flight, a call that would write its arrays, or read
  its `out`, raises InvalidArgumentError, in this World and its process sets. A strided array counts from its first
  byte to its last one, with what lies between its elements.
- `name`: the ranks' calls of one name belong together, in whatever order each rank makes its calls. Use the same names
  in every step: a name that was agreed before costs one bit. Calls without a name belong together by their order; one
  that a rank refuses counts, and is a MismatchError on the others.

Any operation may raise DuplicateNameError (a call of this name is in flight), ShutDownError (the World has been shut
down, here or on another rank), and RecoverableError, the base of PeerLostError, StallError and TransportError (the
World broke). An asynchronous call raises at once if an argument is wrong on its own rank; the wait for its Handle
raises the rest, also a DuplicateNameError.

The examples run on two ranks, after `import numpy as np`, `import hpccoll` and `hpccoll.init()`.
"""

from collections.abc import Sequence
from typing import Any, Unpack, overload

import numpy as np

from hpccoll import _core, objects, programs
from hpccoll.array_types import Array, ArrayT, Compressed, Named, Op, Scaled, T
from hpccoll.compression import Compression
from hpccoll.reductions import SUM

__all__ = ["Collectives", "Handle"]

Handle = _core.Handle


class Collectives:
    """The operations without a root, as methods of a World."""

    core: _core.Set

    @overload
    def allreduce(
        self, x: ArrayT, op: Op = SUM, *, out: ArrayT | None = None, **more: Unpack[Compressed]
    ) -> ArrayT: ...
    @overload
    def allreduce(
        self, x: Sequence[ArrayT], op: Op = SUM, *, out: Sequence[ArrayT] | None = None, **more: Unpack[Compressed]
    ) -> list[ArrayT]: ...
    @overload
    def allreduce(self, x: complex, op: Op = SUM, *, out: None = None, **more: Unpack[Compressed]) -> np.number: ...
    @overload
    def allreduce(
        self, x: Sequence[object], op: Op = SUM, *, out: Sequence[Array] | None = None, **more: Unpack[Compressed]
    ) -> list[Any]: ...
    def allreduce(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        compression: Compression | None = None,
    ) -> Any:
        """Combine the arrays of all ranks, element by element. Every rank gets the result.

            >>> hpccoll.allreduce(np.ones(3, np.float32))
            array([2., 2., 2.], dtype=float32)
            >>> x = np.arange(4.0) + hpccoll.rank()
            >>> mean = hpccoll.allreduce(x, hpccoll.AVERAGE, name="x", out=x)
            >>> x
            array([0.5, 1.5, 2.5, 3.5])

        :param x: an array with the same shape and dtype on all ranks; or a list of arrays, which is a group: its arrays
            are agreed, fused and completed together, and the result is a list
        :param op: one of the reductions. AVERAGE divides by the number of ranks in the World, joined ranks included;
            the average of integers is rounded towards zero
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes the result, of the shape and dtype of `x`; `x` itself: in place; None: a new array; for a
            group: a list of arrays
        :param prescale: each input is multiplied by this number, for SUM and AVERAGE of float and complex types
        :param postscale: the result is multiplied by this number, likewise. Both are applied as one factor, in float32
            or wider, before anything is narrowed
        :param compression: `hpccoll.compression.FP16` or `BF16`: float32 and float64 values travel between nodes as
            16-bit floats; None: as the knob `wire` says
        :returns: an array of the shape and dtype of `x`, or `out`; for a group a list
        :raises MismatchError: the ranks' calls differ in shape, dtype, op, factors or compression; one text on all
            ranks
        :raises UnsupportedError: `op` or a factor is not defined for the dtype
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking("allreduce", x, name, out, op, None, prescale, postscale, compression)

    @overload
    def allreduce_async(
        self, x: ArrayT, op: Op = SUM, *, out: ArrayT | None = None, **more: Unpack[Compressed]
    ) -> Handle[ArrayT]: ...
    @overload
    def allreduce_async(
        self, x: Sequence[ArrayT], op: Op = SUM, *, out: Sequence[ArrayT] | None = None, **more: Unpack[Compressed]
    ) -> Handle[list[ArrayT]]: ...
    @overload
    def allreduce_async(
        self, x: complex, op: Op = SUM, *, out: None = None, **more: Unpack[Compressed]
    ) -> Handle[np.number]: ...
    @overload
    def allreduce_async(
        self, x: Sequence[object], op: Op = SUM, *, out: Sequence[Array] | None = None, **more: Unpack[Compressed]
    ) -> Handle[list[Any]]: ...
    def allreduce_async(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        compression: Compression | None = None,
    ) -> Handle:
        """Begin an `allreduce`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("allreduce", x, name, out, False, op, None, None, prescale, postscale, compression)

    @overload
    def allgather(
        self, x: complex | np.generic, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> np.ndarray: ...
    @overload
    def allgather(self, x: ArrayT, *, out: ArrayT | None = None, **more: Unpack[Named]) -> ArrayT: ...
    @overload
    def allgather(self, x: Sequence[object], *, out: np.ndarray | None = None, **more: Unpack[Named]) -> np.ndarray: ...
    def allgather(self, x: Any, *, name: str | None = None, out: Any = None) -> Any:
        """Concatenate the arrays of all ranks along their first dimension. Every rank gets the result.

            >>> rows = 1 + hpccoll.rank()  # rank 0 has one row, rank 1 has two
            >>> hpccoll.allgather(np.full((rows, 2), hpccoll.rank()))
            array([[0, 0],
                   [1, 1],
                   [1, 1]])

        :param x: an array; the number of rows (the first dimension) may differ between ranks, the other dimensions and
            the dtype may not. An array without dimensions, or a number, counts as one row
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes the result and has its shape and dtype; None: a new array
        :returns: the rows of rank 0, then those of rank 1, and so on; a rank that has joined contributes no rows.
            `Handle.rows()` of the asynchronous form says how many rows came from each rank
        :raises MismatchError: the ranks' arrays differ in dtype or in a dimension other than the first
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result. Where only the number of rows is wrong,
            which no rank knows alone: on all ranks, with one text; no `out` was written
        :raises OutOfMemoryError: a rank has no memory for its result: on all ranks; the World goes on
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking_rows("allgather", x, name, out)

    @overload
    def allgather_async(
        self, x: complex | np.generic, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> Handle[np.ndarray]: ...
    @overload
    def allgather_async(self, x: ArrayT, *, out: ArrayT | None = None, **more: Unpack[Named]) -> Handle[ArrayT]: ...
    @overload
    def allgather_async(
        self, x: Sequence[object], *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> Handle[np.ndarray]: ...
    def allgather_async(self, x: Any, *, name: str | None = None, out: Any = None) -> Handle:
        """Begin an `allgather`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("allgather", x, name, out, False)

    @overload
    def broadcast(self, x: ArrayT, root: int = 0, *, out: ArrayT | None = None, **more: Unpack[Named]) -> ArrayT: ...
    @overload
    def broadcast(self, x: complex, root: int = 0, *, out: None = None, **more: Unpack[Named]) -> np.number: ...
    @overload
    def broadcast(
        self, x: Sequence[object], root: int = 0, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> np.ndarray: ...
    def broadcast(self, x: Any, root: int = 0, *, name: str | None = None, out: Any = None) -> Any:
        """Give the root's array to all ranks.

            >>> hpccoll.broadcast(np.full(2, hpccoll.rank()), root=1)
            array([1, 1])

        :param x: the values on the root; on the other ranks an array of the same shape and dtype, whose values are
            ignored
        :param root: the rank, in this World, whose array is given
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes the result, with the result's shape and dtype; `x` itself: in place; None: a new array
        :returns: an array with the values of the root, or `out`
        :raises MismatchError: the ranks' calls differ in shape, dtype or root
        :raises RootJoinedError: the root has joined
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking("broadcast", x, name, out, None, root)

    @overload
    def broadcast_async(
        self, x: ArrayT, root: int = 0, *, out: ArrayT | None = None, **more: Unpack[Named]
    ) -> Handle[ArrayT]: ...
    @overload
    def broadcast_async(
        self, x: complex, root: int = 0, *, out: None = None, **more: Unpack[Named]
    ) -> Handle[np.number]: ...
    @overload
    def broadcast_async(
        self, x: Sequence[object], root: int = 0, *, out: np.ndarray | None = None, **more: Unpack[Named]
    ) -> Handle[np.ndarray]: ...
    def broadcast_async(
        self,
        x: Any,
        root: int = 0,
        *,
        name: str | None = None,
        out: Any = None,
    ) -> Handle:
        """Begin a `broadcast`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("broadcast", x, name, out, False, root=root)

    @overload
    def reducescatter(
        self, x: ArrayT, op: Op = SUM, *, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> ArrayT: ...
    @overload
    def reducescatter(
        self, x: Sequence[object], op: Op = SUM, *, out: np.ndarray | None = None, **more: Unpack[Scaled]
    ) -> np.ndarray: ...
    def reducescatter(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Any:
        """Combine the arrays of all ranks, element by element. Each rank gets its share of the rows.

            >>> share = hpccoll.reducescatter(np.arange(4.0))
            >>> hpccoll.allgather_object(share.tolist())  # the share of rank 0, and that of rank 1
            [[0.0, 2.0], [4.0, 6.0]]

        :param x: an array of at least one dimension, with the same shape and dtype on all ranks. From n rows each
            of p ranks gets `n // p`, and each of the first `n % p` ranks one row more
        :param op: one of the reductions
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes this rank's rows and has their shape and dtype; None: a new array
        :param prescale: each input is multiplied by this number, for SUM and AVERAGE of float and complex types
        :param postscale: the result is multiplied by this number, likewise
        :returns: this rank's rows of the result
        :raises MismatchError: the ranks' calls differ in shape, dtype, op or factors
        :raises UnsupportedError: `op` or a factor is not defined for the dtype
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the result
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return self.core.blocking("reducescatter", x, name, out, op, None, prescale, postscale)

    @overload
    def reducescatter_async(
        self, x: ArrayT, op: Op = SUM, *, out: ArrayT | None = None, **more: Unpack[Scaled]
    ) -> Handle[ArrayT]: ...
    @overload
    def reducescatter_async(
        self, x: Sequence[object], op: Op = SUM, *, out: np.ndarray | None = None, **more: Unpack[Scaled]
    ) -> Handle[np.ndarray]: ...
    def reducescatter_async(
        self,
        x: Any,
        op: Op = SUM,
        *,
        name: str | None = None,
        out: Any = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle:
        """Begin a `reducescatter`, with the same arguments; the Handle's `wait()` returns the result."""
        return self.core.collective("reducescatter", x, name, out, False, op, prescale=prescale, postscale=postscale)

    @overload
    def alltoall(
        self, x: ArrayT, splits: Sequence[int] | None = None, *, out: ArrayT | None = None, **more: Unpack[Named]
    ) -> tuple[ArrayT, np.ndarray]: ...
    @overload
    def alltoall(
        self,
        x: Sequence[object],
        splits: Sequence[int] | None = None,
        *,
        out: np.ndarray | None = None,
        **more: Unpack[Named],
    ) -> tuple[np.ndarray, np.ndarray]: ...
    def alltoall(
        self,
        x: Any,
        splits: Sequence[int] | None = None,
        *,
        name: str | None = None,
        out: Any = None,
    ) -> tuple[Any, np.ndarray]:
        """Send a part of the rows to each rank, and receive a part from each.

            >>> received, rows = hpccoll.alltoall(np.array([10, 20]) + hpccoll.rank())
            >>> rows
            array([1, 1])
            >>> hpccoll.allgather_object(received.tolist())  # what rank 0 has received, and what rank 1 has
            [[10, 11], [20, 21]]

        :param x: an array of at least one dimension. The number of rows may differ between ranks, the other dimensions
            and the dtype may not
        :param splits: the number of rows for each rank: the first `splits[0]` rows go to rank 0, the next `splits[1]`
            to rank 1, and so on; None: the same number for each, which must be possible
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :param out: takes the rows received and has their shape and dtype; None: a new array
        :returns: the rows received, in the order of the ranks, and an int64 array with the number of rows from each
            rank
        :raises MismatchError: the ranks' arrays differ in dtype or in a dimension other than the first
        :raises InvalidArgumentError: `splits` do not fit, or another argument is wrong on this rank; nothing was sent
        :raises ResultSizeError: `out` does not have the shape of the rows received. Where only the number of rows is
            wrong, which no rank knows alone: on all ranks, with one text; no `out` was written
        :raises OutOfMemoryError: a rank has no memory for a large result: on all ranks; the World goes on
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        result: tuple[Any, np.ndarray] = self.core.blocking_rows("alltoall", x, name, out, None, splits)
        return result

    @overload
    def alltoall_async(
        self, x: ArrayT, splits: Sequence[int] | None = None, *, out: ArrayT | None = None, **more: Unpack[Named]
    ) -> Handle[tuple[ArrayT, np.ndarray]]: ...
    @overload
    def alltoall_async(
        self,
        x: Sequence[object],
        splits: Sequence[int] | None = None,
        *,
        out: np.ndarray | None = None,
        **more: Unpack[Named],
    ) -> Handle[tuple[np.ndarray, np.ndarray]]: ...
    def alltoall_async(
        self,
        x: Any,
        splits: Sequence[int] | None = None,
        *,
        name: str | None = None,
        out: Any = None,
    ) -> Handle:
        """Begin an `alltoall`, with the same arguments; the Handle's `wait()` returns the pair."""
        return self.core.collective("alltoall", x, name, out, False, splits=splits)

    def barrier(self, *, name: str | None = None) -> None:
        """Wait until all ranks have called this.

            >>> hpccoll.barrier()

        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        self.core.blocking("barrier", None, name, None)

    def barrier_async(self, *, name: str | None = None) -> Handle:
        """Begin a `barrier`, with the same arguments; the Handle's `wait()` returns when all ranks have called it."""
        return self.core.collective("barrier", None, name, None, False)

    def join(self) -> int:
        """Say that this rank has no more operations, and wait until all ranks have said so.

        Until then this rank takes part in the operations of the others with neutral elements: zeros for a SUM, no rows
        for an allgather. Ranks with different numbers of steps end their loops with `join()`.

            >>> for step in range(2 + hpccoll.rank()):  # rank 1 makes one step more
            ...     total = hpccoll.allreduce(np.ones(1), name="gradient")
            >>> last = hpccoll.join()
            >>> last
            1

        :returns: the rank that joined last
        :raises HpccollError: as any operation may: ShutDownError, RecoverableError
        """
        programs.wait_for_programs()  # or it would give neutral elements in its own operations
        last: int = self.core.collective("join", None, None, None, True).wait()
        return last

    def join_async(self) -> Handle:
        """Begin a `join`, with the same arguments; the Handle's `wait()` returns the rank that joined last."""
        programs.wait_for_programs()
        return self.core.collective("join", None, None, None, False)

    def broadcast_object(self, obj: Any, root: int = 0, *, name: str | None = None) -> Any:
        """Give the root's Python object to all ranks. It travels as pickle makes it.

            >>> hpccoll.broadcast_object({"rank": hpccoll.rank()}, root=1)
            {'rank': 1}

        :param obj: the object on the root; it is ignored on other ranks
        :param root: the rank, in this World, whose object is given
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :returns: a copy of the root's object, on the root as well
        :raises ObjectError: pickle refuses the object, with the same text on all ranks; or this rank cannot unpickle it
        :raises RootJoinedError: the root has joined
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return objects.broadcast(self.core, obj, root, name)

    def allgather_object(self, obj: T, *, name: str | None = None) -> list[T]:
        """Collect a Python object from each rank. They travel as pickle makes them.

            >>> hpccoll.allgather_object(f"rank {hpccoll.rank()}")
            ['rank 0', 'rank 1']

        :param obj: the object of this rank
        :param name: the ranks' calls of one name belong together, in any order; None: the order of the calls decides
        :returns: a list of copies, in the order of the ranks; a rank that has joined has no object in it
        :raises ObjectError: pickle refuses an object, with the same text on all ranks; or this rank cannot unpickle one
        :raises InvalidArgumentError: an argument is wrong on this rank; nothing was sent
        :raises HpccollError: as any operation may: DuplicateNameError, ShutDownError, RecoverableError
        """
        return objects.allgather(self.core, obj, name)
