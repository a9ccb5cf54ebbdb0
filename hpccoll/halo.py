# SPDX-License-Identifier: Apache-2.0
"""Halo exchange: checks of arguments. ext/world/halo.c does it, for programs in all languages."""

from collections.abc import Sequence
from operator import index

import numpy as np

from hpccoll import _core, arrays, errors

__all__ = ["PROC_NULL", "Halo", "check_array", "widths_of"]

PROC_NULL = -2
Halo = _core.Halo


def check_array(array: np.ndarray, ndim: int) -> None:
    """Raise an error unless this is an array that a halo exchange on `ndim` dimensions can fill.

    :raises InvalidArgumentError: it has fewer dimensions, or is read-only
    :raises UnsupportedError: its elements are references to Python objects, or it has a mask
    """
    if not isinstance(array, np.ndarray) or array.ndim < ndim:
        raise errors.InvalidArgumentError(
            f"array is {arrays.name_of(array)} of {getattr(array, 'ndim', 0)} dimensions: a halo exchange on {ndim} "
            f"takes a NumPy array of at least {ndim}"
        )
    arrays.check_unmasked(array, "array")
    if not array.flags.writeable:
        raise errors.InvalidArgumentError("array is read-only: a halo exchange writes its halo")
    arrays.has_code(array.dtype)


def widths_of(width: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Give the width of a halo for each dimension, in Python's own numbers.

    :param width: for all dimensions, or for each one
    :raises InvalidArgumentError: it is no whole number, and not several
    """
    try:
        return (index(width),) * ndim if isinstance(width, int | np.integer) else tuple(map(index, width))
    except TypeError:
        raise errors.InvalidArgumentError(f"width {width!r} of a halo: a whole number, or one per dimension") from None
