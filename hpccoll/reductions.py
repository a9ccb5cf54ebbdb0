# SPDX-License-Identifier: Apache-2.0
"""The reductions: one set for the operations, the front ends, the plans and the commands, with the core's numbers."""

import enum

import numpy as np

from hpccoll import errors

__all__ = [
    "ADASUM",
    "AVERAGE",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MIN",
    "PRODUCT",
    "SUM",
    "Op",
    "Reduction",
    "reduction_of",
]


class Reduction(enum.Enum):
    """How an operation combines the values of the ranks. The page Reductions says which dtypes each one takes.

    `SUM`, `AVERAGE`, `MIN`, `MAX` and `PRODUCT` are arithmetic, `BAND`, `BOR` and `BXOR` work on bits, `LAND`, `LOR`
    and `LXOR` on truth values. `ADASUM` is for the allreduce of front ends alone. Each is also a name of the package:
    `hpccoll.SUM` is `hpccoll.Reduction.SUM`, and `hpccoll.torch.Sum` is the same.

    The numbers up to 5 are Horovod's, whose programs pass them: `op=1` is SUM. A reduction itself is no number, so that
    it is refused where a rank or a tag is meant.
    """

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5
    BAND = 6
    BOR = 7
    BXOR = 8
    LAND = 9
    LOR = 10
    LXOR = 11

    @property
    def code(self) -> int:
        """The number of the reduction in C.

        :raises NotDefinedError: ADASUM has none that the core defines: it is made of several operations
        """
        if self is Reduction.ADASUM:
            raise errors.NotDefinedError(
                "ADASUM is for the allreduce of hpccoll.torch, .tensorflow, .keras and .mxnet alone"
            )
        return int(self.value)


AVERAGE, SUM, ADASUM = Reduction.AVERAGE, Reduction.SUM, Reduction.ADASUM
MIN, MAX, PRODUCT = Reduction.MIN, Reduction.MAX, Reduction.PRODUCT
BAND, BOR, BXOR = Reduction.BAND, Reduction.BOR, Reduction.BXOR
LAND, LOR, LXOR = Reduction.LAND, Reduction.LOR, Reduction.LXOR

Op = Reduction | int
"""The type of the argument `op`: a reduction, or its number in Horovod."""


def reduction_of(op: object) -> Reduction:
    """Return the reduction that is given as `op`.

    :raises InvalidArgumentError: it is neither a reduction nor one of Horovod's numbers
    """
    if isinstance(op, Reduction):
        return op
    if isinstance(op, (int, np.integer)) and not isinstance(op, bool) and 0 <= op <= PRODUCT.value:
        return Reduction(int(op))
    known = ", ".join(f"hpccoll.{known.name}" for known in Reduction)
    raise errors.InvalidArgumentError(f"op is {op!r}: use one of {known}, or Horovod's numbers, 0 to 5")
