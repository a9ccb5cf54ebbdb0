# SPDX-License-Identifier: Apache-2.0
"""The ways to run a program on one rank: a table of modes, which the modules of the front ends fill."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from differential.programs import Program

Array = np.ndarray[Any, Any]
Results = list[list[Array | None]]
"""By turn, the results of the calls, in the order of the description."""


@dataclass(frozen=True)
class Mode:
    """How a front end runs programs."""

    name: str
    run: Callable[[Program, int, int], Results]
    """Its arguments are the program, this rank and the number of ranks."""
    operations: tuple[str, ...]
    dtypes: tuple[str, ...]
    derives: str = ""
    """The results are gradients, by this convention (programs.gradients)."""


def in_turns(run: Callable[[Program, int, int, int], list[Array | None]]) -> Callable[[Program, int, int], Results]:
    """A mode that runs one turn after the other."""

    def run_all(program: Program, rank: int, size: int) -> Results:
        return [run(program, rank, size, turn) for turn in range(program.turns)]

    return run_all


def placed(program: Program, rank: int, made: list[Any]) -> list[Any]:
    """Results in the order of the calls of this rank, put into the order of the description."""
    results: list[Any] = [None] * len(made)
    for place, result in zip(program.order(rank), made, strict=True):
        results[place] = result
    return results
