# SPDX-License-Identifier: Apache-2.0
"""The ways to run a program on one rank: a table of modes, which the modules of the front ends fill."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from differential.programs import Abilities, Program, Unit

Array = np.ndarray[Any, Any]
NOT_FRAMEWORKS = ("numpy", "c", "cpp", "fortran", "languages")
"""Front ends that belong to the library itself."""
Results = list[list[Array | None]]
"""Per turn, the results of the calls, in the order of the description."""


@dataclass(frozen=True)
class Mode:
    """A way in which a front end runs programs."""

    name: str
    run: Callable[[Program, int, int], Results]
    """Its arguments are the program, this rank and the number of ranks."""
    can: Abilities


def in_turns(run: Callable[[Program, int, int, int], list[Array | None]]) -> Callable[[Program, int, int], Results]:
    """Make a mode that runs one turn after the other."""

    def run_all(program: Program, rank: int, size: int) -> Results:
        return [run(program, rank, size, turn) for turn in range(program.turns)]

    return run_all


def placed(program: Program, made: Iterable[tuple[Unit, list[Any]]]) -> list[Any]:
    """Return the results of units, in the order of the description; None where this rank makes no call."""
    results: list[Any] = [None] * len(program.calls)
    for unit, values in made:
        for place, value in zip(unit.places, values, strict=True):
            results[place] = value
    return results


Way = Callable[[Unit, int], list[Array | None]]
"""Makes the call of a unit in a turn, and returns its results."""


def one_by_one(way: Way) -> Callable[[Program, int, int], Results]:
    """Make a mode that makes the calls of a program one after the other."""

    def run(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
        return placed(program, [(unit, way(unit, turn)) for unit in program.units(rank, size)])

    return in_turns(run)
