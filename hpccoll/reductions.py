# SPDX-License-Identifier: Apache-2.0
"""The reductions, by name: `SUM`, `AVERAGE` and the others."""

from __future__ import annotations

import enum

from hpccoll import _core

__all__ = [
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
    "Reduction",
]


class Reduction(enum.IntEnum):
    """How an operation combines the values of the ranks. The page Reductions says which dtypes each one takes.

    `SUM`, `AVERAGE`, `MIN`, `MAX` and `PRODUCT` are arithmetic, `BAND`, `BOR` and `BXOR` work on bits, `LAND`, `LOR`
    and `LXOR` on truth values. Each is also a name of the package: `hpccoll.SUM` is `hpccoll.Reduction.SUM`.
    """

    SUM = _core.REDUCTIONS.index("SUM")
    AVERAGE = _core.REDUCTIONS.index("AVERAGE")
    MIN = _core.REDUCTIONS.index("MIN")
    MAX = _core.REDUCTIONS.index("MAX")
    PRODUCT = _core.REDUCTIONS.index("PRODUCT")
    BAND = _core.REDUCTIONS.index("BAND")
    BOR = _core.REDUCTIONS.index("BOR")
    BXOR = _core.REDUCTIONS.index("BXOR")
    LAND = _core.REDUCTIONS.index("LAND")
    LOR = _core.REDUCTIONS.index("LOR")
    LXOR = _core.REDUCTIONS.index("LXOR")


SUM, AVERAGE, MIN, MAX, PRODUCT = (
    Reduction.SUM, Reduction.AVERAGE, Reduction.MIN, Reduction.MAX, Reduction.PRODUCT
)  # fmt: skip
BAND, BOR, BXOR = Reduction.BAND, Reduction.BOR, Reduction.BXOR
LAND, LOR, LXOR = Reduction.LAND, Reduction.LOR, Reduction.LXOR
