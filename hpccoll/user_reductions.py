# SPDX-License-Identifier: Apache-2.0
"""User reductions, and MINLOC and MAXLOC, which are implemented by them.

The built-in reductions are compiled into the data plane. Those of a program are computed here: an allgather moves the
ranks' arrays; for large arrays an alltoall moves them, each rank folds its share, and the shares are gathered. Each
result is folded once, in the order of the ranks, or on all ranks in the same way, so that all ranks have the same bits.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from hpccoll import _core, arrays, errors, mixing
from hpccoll.outside import check_inside

__all__ = ["MAXLOC", "MINLOC", "UserReduction", "value_index"]

LARGE = 64 << 10
"""Bytes from which a blocking call divides the work among the ranks."""

C_FUNCTION: Any = ctypes.CFUNCTYPE(None).__bases__[0]
"""The base class of all ctypes functions."""

Fold = Callable[[np.ndarray, np.ndarray], Any]


class UserReduction:
    """A reduction of the program's own: the `op` of `allreduce`, `reduce`, `reducescatter`, `scan` and `exscan`.

        >>> hypot = hpccoll.UserReduction(np.hypot)
        >>> hpccoll.allreduce(np.array([3.0 + hpccoll.rank(), 0.0]), hypot)
        array([5., 0.])

    It must be associative; it need not be commutative, because it is always applied in the order of the ranks. All
    ranks give the same one. Compiled functions are fast: a NumPy function, a C function, a Numba `cfunc`. A Python
    function is called for arrays, once for each rank, so that its own work decides. Arrays of any dtype can be reduced,
    structured ones, too. A call moves up to all ranks' arrays to each rank: for large blocking calls of `allreduce` and
    `reduce` the work is divided among the ranks instead, if the function works element by element.

    A function that mixes elements, such as one that sorts, or keeps the largest k, needs `elementwise=False`:

        >>> def largest(a, b):
        ...     return np.sort(np.concatenate([a, b]))[-len(a):]
        >>> top = hpccoll.UserReduction(largest, elementwise=False)
        >>> hpccoll.allreduce(np.array([1.0, 2.0, 9.0]) + hpccoll.rank(), top)[-1] == 8 + hpccoll.size()
        np.True_
    """

    def __init__(self, function: Any, *, name: str = "", elementwise: bool = True) -> None:
        """Describe it.

        :param function: one of these. A Python callable `f(a, b)` of two arrays of one shape, that returns the
            combined array: `a` comes from lower ranks. A C function `void f(const void *in, void *inout, ssize_t n)`
            that leaves `in` combined with `inout`, n elements each, in `inout`: its address, a ctypes function, or
            whatever has an `address`, as a Numba `cfunc` does
        :param name: for errors; "": the function's
        :param elementwise: each element of the result depends on one element of each array, the one at its place. The
            function is then called with pieces of arrays, in one dimension. The first call with a dtype checks this
            with some elements of the ranks' arrays, and again until some of them differ. False: the function is called
            with whole arrays in their shape, and each rank combines all of them
        :raises InvalidArgumentError: it is none of these
        """
        address = _address(function)
        if address is None and not callable(function):
            raise errors.InvalidArgumentError(
                f"UserReduction({function!r}): give a callable of two arrays, or a C function's address"
            )
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._function = function  # keeps compiled code alive
        self._fold: Fold = function if address is None else _calling(address)
        self.elementwise = elementwise
        self._is_known = not elementwise or (isinstance(function, np.ufunc) and function.signature is None)
        self._checked: set[np.dtype] = set()

    def __repr__(self) -> str:
        return f"<hpccoll.UserReduction {self.name}>"

    def fold(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Combine two arrays; `b` may be overwritten.

        :raises UnsupportedError: the function gives another shape or dtype
        """
        result = np.asarray(self._fold(a, b))
        if result.shape != b.shape or result.dtype != b.dtype:
            raise errors.UnsupportedError(
                f"{self!r} of {b.dtype} arrays of shape {b.shape} gives {result.dtype} and {result.shape}"
            )
        return result

    def neutral(self, like: np.ndarray) -> np.ndarray | None:  # noqa: ARG002 - MINLOC and MAXLOC look at it
        """Return an array like `like` that changes nothing; None: a function of the program does not tell."""
        return None

    def needs_check(self, dtype: np.dtype) -> bool:
        """Say whether it has to be shown that it works element by element."""
        return not (self._is_known or dtype in self._checked)

    def check(self, samples: list[bytes], array: np.ndarray) -> None:
        """Check that it works element by element, with the samples of `mixing.sample_of` of the ranks' arrays.

        :raises UnsupportedError: it does not; the same on all ranks
        """
        if not samples or not self.elementwise:
            return
        mixing.check_elementwise(repr(self), self.fold, samples, array)
        if mixing.differs(samples, array.itemsize):
            self._checked.add(array.dtype)

    # ---- called by the extension for an op that is not built in ----------------------------------------

    def begin(
        self, own: _core.Set, operation: str, x: Any, name: str | None, out: Any, waits: bool, root: int | None
    ) -> Reducing:
        """Begin an operation with this reduction; see `_core.Set.collective`."""
        try:
            array, restore = self._adopt(own, operation, x, root)
        except Exception as error:
            if name is None:  # the other ranks have begun two operations: descriptions, and arrays
                own.tell_refusal(operation, None, error, 2)
            raise
        return Reducing(self, own, operation, array, restore, name, out, waits, root or 0)

    def _adopt(self, own: _core.Set, operation: str, x: Any, root: int | None) -> tuple[np.ndarray, Any]:
        """Check the arguments; return the array, and a function that converts a result to the type of the argument."""
        check_inside(own, operation)
        if isinstance(x, (list, tuple)):
            raise errors.UnsupportedError(f"{operation} with {self!r} takes one array, not a group")
        array, restore = arrays.adopt(x)
        array = np.asarray(array, order="C")
        if array.dtype.hasobject:
            arrays.has_code(array.dtype)  # raises
        if root is not None and operation == "reduce":
            own.check_root(root)
        if operation == "reducescatter" and not array.ndim:
            raise errors.InvalidArgumentError("reducescatter needs at least one dimension, x has none")
        return array, restore


class Reducing:
    """An operation with a user reduction; it has the methods of a Handle."""

    def __init__(
        self,
        op: UserReduction,
        own: _core.Set,
        operation: str,
        array: np.ndarray,
        restore: Any,
        name: str | None,
        out: Any,
        waits: bool,
        root: int,
    ) -> None:
        self._op, self._own, self._operation, self._name = op, own, operation, name
        self._array, self._restore, self._root = array, restore, root
        self._has_result = operation != "reduce" or own.rank == root
        self._out, self._target = out, None
        if out is not None and self._has_result:
            self._target = self._read_out(out)
        said = f"{operation} with {op.name} of {array.dtype} {array.shape}"
        said += f" to rank {root}" if operation == "reduce" else ""
        said += "" if op.elementwise else ", of whole arrays"
        sends_sample = own.rank < mixing.SENDERS and op.needs_check(array.dtype)
        data = said.encode() + b"\0" + (mixing.sample_of(array) if sends_sample else b"")
        self._said = own.collective("allgather", np.frombuffer(data, np.uint8), self._part("agreed"), None, waits)
        divides = waits and op.elementwise and array.nbytes >= LARGE and operation in ("allreduce", "reduce")
        self._whole = None if divides else self._begin_whole(waits)
        self._result: Any = None
        self._is_over = False

    def launched(self) -> bool:
        """Say whether `wait()` would return soon. Never blocks."""
        return self.done()

    def done(self) -> bool:
        """Say whether all arrays have come. Never blocks."""
        return self._is_over or (self._said.done() and (self._whole is None or self._whole.done()))

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until it is finished, and return its result; the arrays are combined here.

        :raises TimeoutError: the time is over; it may be waited for again
        :raises MismatchError: the ranks' calls differ in shape, dtype, reduction or root
        :raises UnsupportedError: the reduction mixes elements, and was not said to
        """
        if not self._is_over:
            try:
                self._op.check(_compare(self._said, self._said.wait(timeout)), self._array)
            except (errors.MismatchError, errors.UnsupportedError):  # raised on all ranks
                with contextlib.suppress(errors.HpccollError):
                    _ = self._whole and self._whole.wait(timeout)
                raise
            if self._whole is None and not self._said.rows().all():  # a rank that has joined would fold no share
                self._whole = self._begin_whole(True)
            result = self._of_shares() if self._whole is None else self._of_whole(self._whole, timeout)
            self._is_over, self._whole = True, None
            self._result = self._given(result) if self._has_result else None
        return self._result

    # ---- methods ----------------------------------------------------------------------------------------

    def _begin_whole(self, waits: bool) -> _core.Handle:
        row = _bytes_of(self._array).reshape(1, -1)
        return self._own.collective("allgather", row, self._part("whole"), None, waits)

    def _of_whole(self, whole: _core.Handle, timeout: float | None) -> np.ndarray | None:
        """Fold on every rank, which has all arrays, those of its result. None: no arrays, and no neutral element."""
        rows = whole.wait(timeout)
        present = np.flatnonzero(whole.rows())  # a rank that has joined has no array
        parts = [row.view(self._array.dtype).reshape(self._array.shape) for row in rows]
        if self._operation in ("scan", "exscan"):
            last = self._own.rank + (self._operation == "scan")
            parts = [part for rank, part in zip(present, parts, strict=True) if rank < last]
        if not self._has_result:
            return self._array
        scatters = self._operation == "reducescatter"
        if scatters and self._op.elementwise:
            parts = [part[self._rows()] for part in parts]
        if not parts:  # the exscan of rank 0
            return self._op.neutral(self._array)
        result: np.ndarray = reduce(self._op.fold, parts[1:], parts[0].copy())
        return result[self._rows()].copy() if scatters and not self._op.elementwise else result

    def _of_shares(self) -> np.ndarray:
        """Every rank folds its share of the elements, and the shares are gathered."""
        own, array = self._own, self._array
        data = _bytes_of(array).reshape(array.size, array.itemsize)
        counts = [len(range(rank, array.size, own.size)) for rank in range(own.size)]
        received, rows = own.collective("alltoall", data, self._part("shares"), None, True, splits=counts).wait()
        parts = [part.reshape(-1).view(array.dtype) for part in np.split(received, np.cumsum(rows)[:-1]) if len(part)]
        share = reduce(self._op.fold, parts[1:], parts[0].copy()) if parts else np.empty(0, array.dtype)
        folded = _bytes_of(share).reshape(-1, array.itemsize)
        to_root = self._operation == "reduce"
        result = own.collective(
            "gather" if to_root else "allgather", folded, self._part("whole"), None, True, root=self._root
        ).wait()
        return array if result is None else result.reshape(-1).view(array.dtype).reshape(array.shape)

    # ---- names, shapes, results ---------------------------------------------------------------------------

    def _part(self, what: str) -> str | None:
        return None if self._name is None else f"{self._name} ({what})"

    def _rows(self) -> slice:
        """The rows of this rank in a reducescatter: as even as can be, the first ranks have one more."""
        share, more = divmod(len(self._array), self._own.size)
        first = self._own.rank * share + min(self._own.rank, more)
        return slice(first, first + share + (self._own.rank < more))

    def _read_out(self, out: Any) -> np.ndarray:
        target = arrays.adopt_out(out)
        like = self._array[self._rows()] if self._operation == "reducescatter" else self._array
        if target.shape != like.shape:
            raise errors.ResultSizeError(f"out has shape {target.shape}, the result has {like.shape}")
        if target.dtype != like.dtype:
            raise errors.InvalidArgumentError(f"out has dtype {target.dtype}, the result has {like.dtype}")
        return target

    def _given(self, result: np.ndarray | None) -> Any:
        if result is None:
            return self._out
        if self._target is None:
            return result if self._restore is None else self._restore(result)
        np.copyto(self._target, result)
        return self._out


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return arrays.flat_bytes(np.asarray(array, order="C"))


def _compare(handle: _core.Handle, received: np.ndarray) -> list[bytes]:
    """Raise MismatchError, on all ranks, unless all descriptions are equal; return the samples of the ranks."""
    texts: list[tuple[int, str]] = []
    samples: list[bytes] = []
    for rank, part in enumerate(np.split(received, np.cumsum(handle.rows())[:-1])):
        if len(part):
            said, _, sample = part.tobytes().partition(b"\0")
            texts.append((rank, said.decode()))
            samples += [sample] if sample else []
    first, wanted = texts[0]
    for rank, text in texts:
        if text != wanted:
            raise errors.MismatchError(f"rank {first} asks for {wanted}, rank {rank} for {text}")
    return samples


def _address(function: Any) -> int | None:
    """The address of a C function; None: it is no C function."""
    if isinstance(function, int):
        return function
    if isinstance(function, C_FUNCTION):
        return ctypes.cast(function, ctypes.c_void_p).value
    address = getattr(function, "address", None)
    return address if isinstance(address, int) else None


def _calling(address: int) -> Fold:
    if not address:
        raise errors.InvalidArgumentError("UserReduction of a null pointer")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)(address)

    def fold(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = np.asarray(a, order="C"), np.array(b, order="C")
        call(a.ctypes.data, b.ctypes.data, b.size)
        return b

    return fold


# ---- MINLOC and MAXLOC -----------------------------------------------------------------------------------


def value_index(value: Any, index: Any) -> np.ndarray:
    """Make the array that MINLOC and MAXLOC take: pairs of a value and an index.

        >>> pairs = hpccoll.value_index([1.5, 2.5], [7, 8])
        >>> pairs["value"].tolist(), pairs["index"].tolist()
        ([1.5, 2.5], [7, 8])

    :param value: numbers
    :param index: whole numbers, of the same shape or of one that NumPy broadcasts to it, such as this rank's number
    :returns: a structured array with the fields `value` and `index`; mpi4py's MPI.DOUBLE_INT arrays work as well
    :raises ValueError: the shapes do not fit
    """
    value, index = np.asarray(value), np.asarray(index)
    pairs = np.empty(np.broadcast_shapes(value.shape, index.shape), [("value", value.dtype), ("index", index.dtype)])
    pairs["value"], pairs["index"] = value, index
    return pairs


class _Loc(UserReduction):
    """Selects the pair with the best value; of equal values, that with the lowest index."""

    def __init__(self, better: Callable[[np.ndarray, np.ndarray], np.ndarray], name: str, *, least: bool) -> None:
        super().__init__(self._first, name=name)
        self._better, self._least = better, least

    def _first(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        value, index = self._fields(a)
        ours, theirs = a[value], b[value]
        nan, their_nan = ours != ours, theirs != theirs  # a NaN is the result, as of MIN and MAX
        ties = (ours == theirs) | (nan & their_nan)
        takes_theirs = np.where(ties, b[index] < a[index], ~nan & (their_nan | self._better(theirs, ours)))
        return np.where(takes_theirs, b, a)

    def _fields(self, pairs: np.ndarray) -> tuple[str, str]:
        names = pairs.dtype.names
        if names is None or len(names) != 2:
            raise errors.UnsupportedError(
                f"{self.name} of dtype {pairs.dtype} is not defined: it takes pairs, as value_index() makes them"
            )
        return names[0], names[1]

    def neutral(self, like: np.ndarray) -> np.ndarray | None:
        value, index = self._fields(like)
        last = _extreme(like.dtype[value], largest=self._least), _extreme(like.dtype[index], largest=True)
        return None if None in last else np.broadcast_to(np.array(last, like.dtype), like.shape).copy()


def _extreme(dtype: np.dtype, *, largest: bool) -> Any:
    """The largest or the least number of a dtype; None: it has none."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if largest else np.iinfo(dtype).min
    return {"b": largest, "f": np.inf if largest else -np.inf}.get(dtype.kind)


MINLOC = _Loc(np.less, "MINLOC", least=True)
"""The least value and its index, of pairs (`value_index`); of equal values the lowest index, of NaNs the first."""
MAXLOC = _Loc(np.greater, "MAXLOC", least=False)
"""The largest value and its index, of pairs (`value_index`); of equal values the lowest index, of NaNs the first."""
