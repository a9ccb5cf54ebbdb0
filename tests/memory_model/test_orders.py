# SPDX-License-Identifier: Apache-2.0
"""The protocols in shared memory, in every order and with every value that C11 allows, within bounds (explorer.h).

Each acquire, release and fence is taken away, one at a time, and some scenario must go wrong.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from explored import IN_LOOP, IN_NODE, SCENARIOS

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


NEEDED_IN_LOOP = {
    "acquire of hc__driver_try", "acquire of hc__inbox_take", "acquire of hc_handle_done",
    "acquire of hc_handle_release", "acquire of hc_loop_get_tuning", "acquire of hc_loop_trace_read",
    "acquire of hc__completion_call", "acquire of take_requests", "release of begin",
    "release of hc__ask_flush", "release of hc__tuning_perform", "release of hc_handle_release",
    "release of leave_to_caller",
    "seq_cst of hc__completion_begun", "seq_cst of listen", "seq_cst of hc__driver_vacate",
    "seq_cst of hc__inbox_push", "seq_cst of hc__look_away", "seq_cst of hc__wake_waiters",
    "seq_cst of hc_loop_submit", "seq_cst of sleep_for_news", "seq_cst of admit", "seq_cst of hc_loop_count",
    "seq_cst of hc__counted_keeps", "release of hc__counted_off",
}  # fmt: skip
"""What the scenarios of the loop find, each within some ten thousand executions."""


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


def judge(program: Path, output: str) -> tuple[list[str], set[str]]:
    """Return the orders of ext that were taken away and not missed, with their lines, and those that were."""
    all_of_them = plants(output)
    places = sources(program, [plant.place for plant in all_of_them])
    judged = [(p, f"{p.part} of {name}", name, line) for p, (name, line) in zip(all_of_them, places, strict=True)]
    unseen = [
        f"{line}: {what}, after {plant.executions} executions"
        for plant, what, name, line in judged
        if plant.found_by == "-" and "/ext/" in line and (name, plant.part) not in NOT_NEEDED
    ]
    return unseen, {what for plant, what, _, line in judged if plant.found_by != "-" and "/ext/" in line}


@pytest.mark.parametrize("program", ALLOWED)
def test_the_explorer_knows_c11(run_c: Callable[..., str], explore: Path, program: str) -> None:
    assert run_c(explore, "outcomes", program).split() == ALLOWED[program].split()


def test_the_explorer_finds_a_race(run_c: Callable[..., str], explore: Path) -> None:
    assert run_c(explore, "outcomes", "race").startswith("race: ")


def test_each_order_is_needed(run_c: Callable[..., str], explore: Path) -> None:
    """The scenarios as they are go well, and without any order one of them goes wrong."""
    unseen, seen = judge(explore, run_c(explore, "plants", 300, 1000, *IN_NODE))
    assert unseen == []
    assert len(seen) > 30


@pytest.mark.parametrize("scenario", IN_LOOP)
def test_the_loop(run_c: Callable[..., str], explore: Path, scenario: str) -> None:
    run_c(explore, "all", scenario, 2, 2, 3000)
    run_c(explore, "random", scenario, 1, 3000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_orders_of_the_loop(run_c: Callable[..., str], explore: Path) -> None:
    _, seen = judge(explore, run_c(explore, "plants", 1000, 4000, *IN_LOOP, timeout=500))
    assert seen >= NEEDED_IN_LOOP


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_more_executions(run_c: Callable[..., str], explore: Path, scenario: str) -> None:
    run_c(explore, "all", scenario, 2, 2, 30000, timeout=300)
    run_c(explore, "random", scenario, 7, 10000, timeout=300)
