# SPDX-License-Identifier: Apache-2.0
"""The reductions under Horovod's names, and its arguments `op` and `average`."""

import warnings

import numpy as np

from hpccoll import errors
from hpccoll.reductions import ADASUM, AVERAGE, MAX, MIN, PRODUCT, SUM, Op, Reduction, reduction_of

__all__ = ["Adasum", "Average", "Max", "Min", "Op", "Product", "Reduction", "Sum", "choose"]

Average, Sum, Adasum, Min, Max, Product = AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT


def choose(op: Op | None, average: bool | None = None) -> Reduction:
    """Return the reduction that `op` or its deprecated predecessor `average` means; Average if neither is given.

    :raises InvalidArgumentError: both are given, or `op` is no reduction, or `average` is neither true nor false
    """
    if average is not None:
        if not isinstance(average, (bool, np.bool_)):
            raise errors.InvalidArgumentError(f"average is {average!r}: it is True or False; use op=Average or op=Sum")
        if op is not None:
            raise errors.InvalidArgumentError("op and average are both given: average is deprecated, use op alone")
        warnings.warn("average is deprecated, use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average if op is None else reduction_of(op)
