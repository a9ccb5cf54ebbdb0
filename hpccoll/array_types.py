# SPDX-License-Identifier: Apache-2.0
"""Types of the arguments and results of operations, for type checkers: the result has the kind of the input array.

The overloads of an operation give the types of its first argument and its result. The other arguments are common to
all overloads and are in a TypedDict; the function itself, whose signature help() shows, lists each of them.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict, TypeVar

import numpy as np

from hpccoll.compression import Compression
from hpccoll.reductions import Reduction
from hpccoll.user_reductions import UserReduction

__all__ = ["Array", "ArrayT", "Compressed", "Named", "Op", "Scaled", "T", "Values"]


class _Buffer(Protocol):
    @property
    def __buffer__(self) -> Any: ...


class _DLPack(Protocol):
    @property
    def __dlpack__(self) -> Any: ...


class _OnGpu(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...


Array = _Buffer | _DLPack | _OnGpu | np.generic
"""Objects with memory that the library can use."""
Values = Array | complex | Sequence[object]
"""An array, a number, a list of numbers or a list of arrays."""
Op = Reduction | UserReduction
"""The reduction of an operation."""
ArrayT = TypeVar("ArrayT", bound=Array)
T = TypeVar("T")


class Named(TypedDict, total=False):
    """Optional arguments of every operation."""

    name: str | None


class Scaled(Named, total=False):
    """Optional arguments of an operation with a reduction."""

    prescale: float
    postscale: float


class Compressed(Scaled, total=False):
    """Optional arguments of an allreduce."""

    compression: Compression | None
