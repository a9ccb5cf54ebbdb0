# SPDX-License-Identifier: Apache-2.0
"""The calls of one program in Python, C, C++ and Fortran in turn, in the same Worlds."""

from differential import modes_c, modes_cpp, modes_fortran, modes_numpy
from differential.modes import Array, Mode, Way, one_by_one
from differential.programs import Unit


def modes() -> list[Mode]:
    blocking_or_not = [way for module in (modes_c, modes_cpp, modes_fortran) for way in module.ways()[:2]]
    ways: list[Way] = [modes_numpy.block, *blocking_or_not]

    def in_turn(unit: Unit, turn: int) -> list[Array | None]:
        return ways[(unit.places[0] + turn) % len(ways)](unit, turn)

    return [Mode("Python, C, C++ and Fortran in turn", one_by_one(in_turn), modes_c.OF_ALL)]
