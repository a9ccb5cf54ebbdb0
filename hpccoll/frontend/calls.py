# SPDX-License-Identifier: Apache-2.0
"""Operations without their tensors: what a front end passes on from a function's arguments to its tensors."""

import dataclasses

from hpccoll.compression import Compression
from hpccoll.frontend.process_sets import ProcessSet
from hpccoll.frontend.reductions import Reduction

__all__ = ["Allreduce", "Reducescatter"]


@dataclasses.dataclass(frozen=True, slots=True)
class Allreduce:
    """Everything about an allreduce but its tensors."""

    name: str | None
    op: Reduction
    prescale: float
    postscale: float
    process_set: ProcessSet
    group: bool
    wire: Compression | None = None
    """The 16-bit format of float32 and float64 values on the wire; None: unchanged."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reducescatter:
    """Everything about some reducescatters but their tensors."""

    names: list[str | None]
    op: Reduction
    prescale: float
    postscale: float
    process_set: ProcessSet
