# SPDX-License-Identifier: Apache-2.0
"""Horovod's reductions: their numbers, and the library's reductions that they stand for."""

from __future__ import annotations

import enum
import warnings

import numpy as np

from hpccoll import collectives, errors

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "ReduceOp", "Sum", "choose", "reduction"]


class ReduceOp(enum.IntEnum):
    """How values are combined, with Horovod's numbers."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average, Sum, Adasum = ReduceOp.Average, ReduceOp.Sum, ReduceOp.Adasum
Min, Max, Product = ReduceOp.Min, ReduceOp.Max, ReduceOp.Product

_HERE = {
    Average: collectives.AVERAGE,
    Sum: collectives.SUM,
    Min: collectives.MIN,
    Max: collectives.MAX,
    Product: collectives.PRODUCT,
}


def choose(op: int | None, average: bool | None = None) -> ReduceOp:
    """Return the reduction that `op` or its deprecated predecessor `average` means; Average if neither is given.

    :raises InvalidArgumentError: both are given, or `op` is none of the numbers, or `average` is neither true nor false
    """
    if average is not None:
        if not isinstance(average, (bool, np.bool_)):
            raise errors.InvalidArgumentError(f"average is {average!r}: it is True or False; use op=Average or op=Sum")
        if op is not None:
            raise errors.InvalidArgumentError("op and average are both given: average is deprecated, use op alone")
        warnings.warn("average is deprecated, use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    if op is None:
        return Average
    try:
        return ReduceOp(op)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"op is {op!r}: use one of {', '.join(known.name for known in ReduceOp)}"
        ) from None


def reduction(op: ReduceOp) -> collectives.Reduction:
    """Return the library's reduction.

    :raises InvalidArgumentError: for Adasum, which is a procedure and not a reduction (hpccoll.frontend.adasum)
    """
    if op is Adasum:
        raise errors.InvalidArgumentError("Adasum is for allreduce alone")
    return _HERE[op]
