# SPDX-License-Identifier: Apache-2.0
"""The protocols in shared memory, in every order and with every value that C11 allows, within bounds (explorer.h).

Each acquire, release and fence is taken away, one at a time, and some scenario must go wrong.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from explored import SCENARIOS

ALLOWED = {
    "MP": "0 1 10 11",
    "MP+rel+acq": "0 1 11",
    "MP+fences": "0 1 11",
    "MP+rel": "0 1 10 11",
    "SB+rel+acq": "0 1 10 11",
    "SB+sc": "1 10 11",
    "SB+fences": "1 10 11",
    "SB+fence+acq_rel": "0 1 10 11",
    "SB+updates": "0 1 10 11",
    "CoRR": "0 10 11 20 21 22",
    "updates": "1 10",
    "WRC+rel+acq": "0 1 10 100 101 110 111",
    "release-sequence": "0 1 10 100 101 110 111 121",
    "RWC+acq": "0 1 10 11 100 101 110 111",
    "RWC+sc": "0 10 11 100 101 110 111",
    "RWC+fences": "0 10 11 100 101 110 111",
    "no-race": "0 1",
}
"""By program of litmus.c, what C11 (with the fences of C20) allows. The last digit is the first value that is noted."""

NOT_NEEDED = {
    ("hc__node_control_withdrawn", "seq_cst"): "the kernel may copy with string instructions",
    ("hc__node_control_withdrawn", "release"): "the same",
    ("hc_shortcut_give_up", "acquire"): "C11 wants it no weaker than that of a comparison which fails",
    ("is_lost", "acquire"): "the look at a lock of a file follows, and the model has no system calls",
}
"""By function and part: orders that no scenario needs, and why they stay."""


class Plant(NamedTuple):
    """An order that was taken away at a place of the program: `line` names a scenario, or "-"."""

    place: str
    kind: str
    part: str
    found_by: str
    executions: str
    what: str


def plants(output: str) -> list[Plant]:
    return [Plant(*line.split(maxsplit=6)[1:]) for line in output.splitlines() if line.startswith("plant ")]


def sources(program: Path, places: list[str]) -> list[tuple[str, str]]:
    """Return the function and the line of the source of each place, which is the address after a call."""
    addresses = [hex(int(place, 16) - 1) for place in places]
    command = ["addr2line", "-f", "-e", str(program), *addresses]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return [(name, line.split(" ")[0]) for name, line in zip(words[0:-1:2], words[1::2], strict=True)]


def not_found(program: Path, output: str) -> list[str]:
    """List the orders of ext that were taken away and not missed, but for those that are known."""
    all_of_them = plants(output)
    assert len(all_of_them) > 40
    places = sources(program, [plant.place for plant in all_of_them])
    return [
        f"{line}: {plant.part} of {function}, after {plant.executions} executions"
        for plant, (function, line) in zip(all_of_them, places, strict=True)
        if plant.found_by == "-" and "/ext/" in line and (function, plant.part) not in NOT_NEEDED
    ]


@pytest.mark.parametrize("program", ALLOWED)
def test_the_explorer_knows_c11(run_c: Callable[..., str], explore: Path, program: str) -> None:
    assert run_c(explore, "outcomes", program).split() == ALLOWED[program].split()


def test_the_explorer_finds_a_race(run_c: Callable[..., str], explore: Path) -> None:
    assert run_c(explore, "outcomes", "race").startswith("race: ")


def test_each_order_is_needed(run_c: Callable[..., str], explore: Path) -> None:
    """The scenarios as they are go well, and without any order one of them goes wrong."""
    assert not_found(explore, run_c(explore, "plants", 300, 1000, *SCENARIOS)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_more_executions(run_c: Callable[..., str], explore: Path, scenario: str) -> None:
    run_c(explore, "all", scenario, 2, 2, 100000, timeout=300)
    run_c(explore, "random", scenario, 7, 20000, timeout=300)
