# SPDX-License-Identifier: Apache-2.0
"""User reductions, and MINLOC and MAXLOC, which are implemented by them.

The built-in reductions are compiled into the data plane. Those of a program are computed by ext/world/user_reduction.c,
for all languages; this module has what is Python's: which functions there are, and how one is called.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from hpccoll import arrays, errors, mixing

__all__ = ["MAXLOC", "MINLOC", "UserReduction", "value_index"]

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
        """Describe the reduction.

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
        self.address = _address(function)
        """The C function, which is called without the interpreter's lock; None: it is a Python callable."""
        if self.address is None and not callable(function):
            raise errors.InvalidArgumentError(
                f"UserReduction({function!r}): give a callable of two arrays, or a C function's address"
            )
        if isinstance(function, np.ufunc) and (function.nin, function.nout) != (2, 1):  # np.sqrt(a, b) would write b
            raise errors.InvalidArgumentError(
                f"UserReduction({function!r}): it takes {function.nin} and gives {function.nout}, not two and one"
            )
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._function = function  # keeps compiled code alive
        self._fold: Fold = function if self.address is None else _calling(self.address)
        self.elementwise = elementwise
        self.is_known = not elementwise or (isinstance(function, np.ufunc) and function.signature is None)
        """Whether nothing needs to be shown of it."""
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

    # ---- called by the extension -----------------------------------------------------------------------

    SENDERS = mixing.SENDERS
    sample_of = staticmethod(mixing.sample_of)

    def check_dtype(self, dtype: np.dtype) -> None:
        """Refuse a dtype for which it is not defined, before anything is sent."""

    def needs_check(self, dtype: np.dtype) -> bool:
        """Say whether it has to be shown that it works element by element."""
        return not (self.is_known or dtype in self._checked)

    def check(self, samples: list[bytes], array: np.ndarray) -> None:
        """Check that it works element by element, with the samples of `mixing.sample_of` of the ranks' arrays.

        :raises UnsupportedError: it does not; the same on all ranks
        """
        mixing.check_elementwise(repr(self), self.fold, samples, array)
        if mixing.differs(samples, array.itemsize):
            self._checked.add(array.dtype)


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
    :raises UnsupportedError: one of them is a masked array
    """
    arrays.check_unmasked(value, "value")
    arrays.check_unmasked(index, "index")
    value, index = np.asarray(value), np.asarray(index)
    pairs = np.empty(np.broadcast_shapes(value.shape, index.shape), [("value", value.dtype), ("index", index.dtype)])
    pairs["value"], pairs["index"] = value, index
    return pairs


class _Loc(UserReduction):
    """Selects the pair with the best value; of equal values, that with the lowest index."""

    def __init__(self, better: Callable[[np.ndarray, np.ndarray], np.ndarray], name: str, *, least: bool) -> None:
        super().__init__(self._first, name=name)
        self._better, self._least = better, least
        self.is_known = True

    def _first(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        value, index = a.dtype.names or ()
        ours, theirs = a[value], b[value]
        nan, their_nan = ours != ours, theirs != theirs  # a NaN is the result, as of MIN and MAX
        ties = (ours == theirs) | (nan & their_nan)
        takes_theirs = np.where(ties, b[index] < a[index], ~nan & (their_nan | self._better(theirs, ours)))
        return np.where(takes_theirs, b, a)

    def check_dtype(self, dtype: np.dtype) -> None:
        if dtype.names is None or len(dtype.names) != 2:
            raise errors.UnsupportedError(
                f"{self.name} of dtype {dtype} is not defined: it takes pairs, as value_index() makes them"
            )

    def neutral(self, like: np.ndarray) -> np.ndarray | None:
        value, index = like.dtype.names or ()
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
