# SPDX-License-Identifier: Apache-2.0
"""One operation as a traced program has it: everything but the arrays, fixed when the program is traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpccoll import _core, _xla
from hpccoll.reductions import Reduction

__all__ = ["MESSAGES", "Call", "Shape"]

Shape = tuple[int, ...]

_CODES = {name: code for code, name in enumerate(_core.OPERATIONS)}
_CODES |= {"send": _xla.SEND, "recv": _xla.RECEIVE, "sendrecv": _xla.SENDRECV}

MESSAGES = ("send", "recv", "sendrecv")
_SAME_SHAPE = ("allreduce", "broadcast", "scan", "exscan")
_TO_ROOT = ("reduce", "gather")


@dataclasses.dataclass(frozen=True)
class Call:
    """The attributes of an operation."""

    operation: str
    name: str
    set: int
    """The process set, as the gate knows it."""
    rank: int
    size: int
    reduction: int = Reduction.SUM.value
    prescale: float = 1.0
    postscale: float = 1.0
    wire: int = _core.WIRE_SAME
    group: bool = False
    root: int = -1
    """Rank in the set; of a message the rank that it goes to, or comes from."""
    splits: tuple[int, ...] | None = None
    """Rows to each rank."""
    rows: tuple[int, ...] | None = None
    """Rows from each rank, if they differ."""
    tag: int = 0
    """The tag of a message; ANY_TAG: of a receive that takes any."""
    source: int = -1
    source_tag: int = 0
    received: tuple[Shape, np.dtype] | None = None
    """What a message has that this rank receives."""
    of_each: bool = False
    """Whether each rank's result of an allreduce is a value of its own, as in the transpose of a broadcast."""
    tells: int = 0
    """How many times it is differentiated. If it is, its last result is its ticket, which says to its derivatives which
    call it was."""
    follows: str = ""
    """The name of the call of which this is a derivative, and whose ticket is its last array; "": it has none."""
    back: bool = False
    """Whether the messages of a sendrecv go where those of the one that it follows came from."""

    @property
    def code(self) -> int:
        """The number of the operation in C."""
        return _CODES[self.operation]

    @property
    def elementwise(self) -> bool:
        """Whether each element has a result of its own."""
        return self.operation in (*_SAME_SHAPE, "reduce")

    @property
    def in_place(self) -> bool:
        """Whether a result may lie where its array lies."""
        return self.operation in _SAME_SHAPE

    @property
    def ordered(self) -> bool:
        """Whether it keeps its place among others of its kind, which alone tells them apart."""
        return self.operation in (*MESSAGES, "barrier")

    @property
    def factor(self) -> float:
        """What the sum over the ranks is multiplied with."""
        mean = self.reduction == _core.REDUCTIONS.index("AVERAGE")
        return self.prescale * self.postscale / (self.size if mean else 1)

    def also(self, what: str, **changes: Any) -> Call:
        """Make a call that follows from this one, under a name of its own."""
        return dataclasses.replace(self, name=f"{self.name}.{what}", tells=0, **changes)

    def shapes(self, shapes: Sequence[Shape], dtypes: Sequence[np.dtype]) -> list[tuple[Shape, np.dtype]]:
        """Return the shapes and dtypes of the results on this rank."""
        if self.received is not None:
            return [self.received]
        if self.operation in ("send", "barrier") or (self.operation in _TO_ROOT and self.rank != self.root):
            return []
        if self.elementwise:
            return list(zip(shapes, dtypes, strict=True))
        return [((self._rows(shapes[0][0]), *shapes[0][1:]), dtypes[0])]

    def _rows(self, rows: int) -> int:
        if self.operation in ("allgather", "gather"):
            return rows * self.size if self.rows is None else sum(self.rows)
        if self.operation == "alltoall":
            return rows if self.rows is None else sum(self.rows)
        if self.splits is not None:
            return self.splits[self.rank]
        return rows // self.size + (self.rank < rows % self.size)

    def batched(self, size: int) -> Call:
        """Make the call for arrays with a further dimension of `size`."""
        if self.received is None:
            return self
        shape, dtype = self.received
        return dataclasses.replace(self, received=((size, *shape), dtype))
