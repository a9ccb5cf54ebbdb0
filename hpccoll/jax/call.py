# SPDX-License-Identifier: Apache-2.0
"""The description of one operation in a traced program: everything except the arrays."""

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
    """The gate's number of the process set."""
    rank: int
    size: int
    reduction: int = Reduction.SUM.value
    prescale: float = 1.0
    postscale: float = 1.0
    wire: int = _core.WIRE_SAME
    group: bool = False
    root: int = -1
    """The root's rank in the set; for a send its destination, for a receive its source."""
    splits: tuple[int, ...] | None = None
    """The number of rows for each rank."""
    rows: tuple[int, ...] | None = None
    """The number of rows from each rank; None: all ranks give equally many."""
    tag: int = 0
    """The tag of a message. A receive with ANY_TAG takes messages of all tags."""
    source: int = -1
    source_tag: int = 0
    received: tuple[Shape, np.dtype] | None = None
    """Shape and dtype of the message that this rank receives."""
    of_each: bool = False
    """Whether the ranks use the result of this allreduce differently, as in the transpose of a broadcast. Then its
    transpose is an allreduce again, not the identity."""
    tells: int = 0
    """How many times the call is differentiated. If this is not 0, the last result is a ticket, which identifies the
    call to its derivatives."""
    follows: str = ""
    """The name of the call that this one differentiates; its ticket is then the last array. Otherwise ""."""
    back: bool = False
    """Whether this sendrecv is a transpose: it sends back to the source of the differentiated one."""

    @property
    def code(self) -> int:
        """The number of the operation in C."""
        return _CODES[self.operation]

    @property
    def elementwise(self) -> bool:
        """Whether the operation combines or copies element by element."""
        return self.operation in (*_SAME_SHAPE, "reduce")

    @property
    def in_place(self) -> bool:
        """Whether a result may use the memory of its array."""
        return self.operation in _SAME_SHAPE

    @property
    def ordered(self) -> bool:
        """Whether the operation must keep its order among others of its kind, because ranks match them by order."""
        return self.operation in (*MESSAGES, "barrier")

    @property
    def factor(self) -> float:
        """The factor by which the sum over the ranks is multiplied."""
        mean = self.reduction == _core.REDUCTIONS.index("AVERAGE")
        return self.prescale * self.postscale / (self.size if mean else 1)

    def also(self, what: str, **changes: Any) -> Call:
        """Make a changed copy of this call, whose name has the suffix `what`."""
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
        """Make the call for arrays with one more dimension, of `size` elements."""
        if self.received is None:
            return self
        shape, dtype = self.received
        return dataclasses.replace(self, received=((size, *shape), dtype))
