# SPDX-License-Identifier: Apache-2.0
"""How the values of gradients are combined: operation, factors, and what they travel as."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hpccoll import collectives, errors
from hpccoll._core import Buffer
from hpccoll.collectives import Handle, Reduction
from hpccoll.compression import Compression
from hpccoll.world import World

__all__ = ["Piece", "Recipe"]


Memory = np.ndarray | Buffer


class Piece(NamedTuple):
    """Where the values of a gradient are, and where they stay."""

    memory: Memory
    narrows: bool
    """Whether they are float32 or float64, which may travel as something narrower."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """What all gradients of an optimizer have in common."""

    world: World
    op: Reduction = collectives.AVERAGE
    predivide: float = 1.0
    """With AVERAGE: divide by this before the sum, and by the number of ranks over this afterwards."""
    compression: Compression | None = None
    """For float32 and float64; other types travel as they are."""

    def __post_init__(self) -> None:
        if self.predivide != 1.0 and self.op != collectives.AVERAGE:
            raise errors.InvalidArgumentError("gradient_predivide_factor not supported with op != Average")
        if not self.predivide > 0:
            raise errors.InvalidArgumentError(f"gradient_predivide_factor is {self.predivide}, not positive")

    def start(self, name: str, pieces: Sequence[Piece]) -> list[Handle]:
        """Begin to reduce the pieces in place; several are a group.

        What cannot be narrowed beside what can is a group of its own, submitted together with it.
        """
        if len(pieces) == 1:
            return [self.start_one(name, *pieces[0])]
        if self.compression is None or not any(piece.narrows for piece in pieces):
            return [self._submit(name, _group(pieces), None)]
        narrow = [piece for piece in pieces if piece.narrows]
        handles = [self._submit(name, _group(narrow), self.compression)]
        rest = [piece for piece in pieces if not piece.narrows]
        return [*handles, self._submit(f"{name}, as they are", _group(rest), None)] if rest else handles

    def start_one(self, name: str, memory: Memory, narrows: bool) -> Handle:
        """Begin to reduce one piece in place."""
        return self._submit(name, memory, self.compression if narrows else None)

    def _submit(self, name: str, x: Memory | list[Memory], compression: Compression | None) -> Handle:
        return self.world.core.allreduce(
            x, self.op, name, x, 1.0 / self.predivide, self.predivide, compression, False
        )


def _group(pieces: Sequence[Piece]) -> Memory | list[Memory]:
    return pieces[0].memory if len(pieces) == 1 else [piece.memory for piece in pieces]
