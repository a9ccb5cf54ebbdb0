# SPDX-License-Identifier: Apache-2.0
"""Types of what operations take and give, for type checkers: an array of one kind in gives the same kind out.

The overloads of an operation say what its first argument and its result are. The other arguments, which all of them
have, are in a TypedDict; the function itself, whose signature help() shows, names each of them.
"""

from __future__ import annotations

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
"""What has memory that the library can use."""
Values = Array | complex | Sequence[object]
"""An array, a number, a list of numbers or a list of arrays."""
Op = Reduction | UserReduction
"""How values of several ranks become one."""
ArrayT = TypeVar("ArrayT", bound=Array)
T = TypeVar("T")


class Named(TypedDict, total=False):
    """What every operation may have."""

    name: str | None


class Scaled(Named, total=False):
    """What an operation that adds may have."""

    prescale: float
    postscale: float


class Compressed(Scaled, total=False):
    """What an allreduce may have."""

    compression: Compression | None
