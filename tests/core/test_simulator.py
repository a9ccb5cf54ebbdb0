# SPDX-License-Identifier: Apache-2.0
"""Random programs on virtual ranks with real engines, compared with an omniscient machine.

A few thousand here; `python tests/core/soak.py` runs as many as you like, `make check` 100,000.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from programs import SANITIZE, SLOTS, WITHOUT_SLOTS, Build, simulator, starve


@pytest.fixture(scope="module")
def sim(build_c: Build) -> Path:
    return simulator(build_c)


@pytest.mark.parametrize(
    ("programs", "flags"),
    [
        (2000, "--ranks 1-64"),
        (1000, "--ranks 1-6 --capacity 1 --stop 0"),
        (1000, "--ranks 1-6 --capacity 2 --stop 0"),
        (1000, "--ranks 1-6 --capacity 3 --joins 1 --stop 0"),
        (500, "--ranks 1-6 --capacity 0"),
        (500, "--ranks 2-12 --lazy 1 --stop 0 --fail 0"),
        (500, "--ranks 2-12 --stop 1"),
        (500, "--ranks 2-12 --fail 1 --stop 0"),
        (500, "--ranks 2-12 --stall 1 --stop 0 --fail 0 --lazy 0"),
        (1000, "--ranks 1-12 --unnamed 1"),
    ],
)
def test_programs(sim: Path, run_c: Callable[..., str], programs: int, flags: str) -> None:
    print(run_c(sim, "--programs", programs, *flags.split()))


def test_two_slots_a_name(build_c: Build, run_c: Callable[..., str]) -> None:
    """The bound on the slots of one name, made so small that most programs meet it."""
    program = simulator(build_c, engine=(*WITHOUT_SLOTS, f"{SLOTS} -DHC__SLOTS_PER_NAME=2"))
    print(run_c(program, "--programs", 1000, "--ranks", "1-6", "--capacity", 200, "--stop", 0))


def test_sanitized(build_c: Build, run_c: Callable[..., str]) -> None:
    """Address and undefined-behaviour sanitizers, leaks included."""
    program = simulator(build_c, *SANITIZE)
    print(run_c(program, "--programs", 400, "--seed", 900000, timeout=100))


def test_out_of_memory(build_c: Build, run_c: Callable[..., str], starving: tuple[str, ...]) -> None:
    """An allocation inside an engine fails: all ranks are told, every request ends, nothing leaks."""
    print(run_c(starve(build_c, starving), 500, timeout=100))


def test_replay(sim: Path, run_c: Callable[..., str]) -> None:
    """The same seed is the same run, event for event."""
    traces = {run_c(sim, "--programs", 1, "--seed", 7, "--trace") for _ in range(2)}
    assert len(traces) == 1
    assert "COMPLETE" in traces.pop()
