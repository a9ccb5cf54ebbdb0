# SPDX-License-Identifier: Apache-2.0
"""Worlds to test with: threads in several layouts, and the real ones of an MPI job, under one fixture.

A test gives a program to the fixture `everywhere`; the program runs once per rank and has its own assertions.
"""

import math
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pairs import every_pair

import hpccoll
from hpccoll import testing

sys.path.insert(0, str(Path(__file__).parent))

LAYOUTS = ["1", "2", "3", "4", "1+1", "2+1", "2+2", "1+1+2"]
"""Ranks of each node. `make test` has the slow ones (below) under MPI alone: 3 ranks on 2 nodes."""
SLOW = ("3", "4", "1+1", "2+1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what no pair of values needs (tests/pairs.py), in tests with two parameters beside the layout."""
    alike = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and "everywhere" in item.fixturenames and not runs_elsewhere(item):
            alike[item.nodeid.split("[")[0]].append(item)
    for of_one_test in alike.values():
        given = [[id(value) for value in item.callspec.params.values()] for item in of_one_test]
        values = [list(dict.fromkeys(of_one)) for of_one in zip(*given, strict=True)]
        if len(values) < 3 or len(given) < math.prod(map(len, values)):
            continue  # all are needed, or the test's own list has not all combinations
        chosen = every_pair([len(of_one) for of_one in values])
        for item, its in zip(of_one_test, given, strict=True):
            if tuple(of_one.index(one) for of_one, one in zip(values, its, strict=True)) not in chosen:
                item.add_marker(pytest.mark.slow)


def runs_elsewhere(item: pytest.Item) -> bool:
    """Only `make test-all` has it, or ranks of MPI have it, of which there are few layouts."""
    return any(item.get_closest_marker(name) for name in ("slow", "mpi"))


Everywhere = Callable[[Callable[[hpccoll.World], Any]], list[Any]]


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param(layout, marks=pytest.mark.slow if layout in SLOW else ()) for layout in LAYOUTS),
        pytest.param("mpi", marks=pytest.mark.mpi(min_size=1)),
    ],
)
def everywhere(request: pytest.FixtureRequest) -> Iterator[Everywhere]:
    """Run a program on every rank of a World; give the results in the order of the ranks (under MPI: of this rank)."""
    if request.param == "mpi":
        with hpccoll.World(verbose=0) as world:
            yield lambda program: [program(world)]
        return
    ranks = sum(map(int, request.param.split("+")))
    worlds = testing.threads(ranks, nodes=request.param if "+" in request.param else "")
    yield lambda program: testing.run(worlds, program)
    testing.run(worlds, hpccoll.World.shutdown)


@pytest.fixture
def threads() -> Iterator[Callable[..., list[hpccoll.World]]]:
    """Make Worlds of threads with the knobs of the test, and end them after it."""
    made: list[list[hpccoll.World]] = []

    def make(n: int, **knobs: Any) -> list[hpccoll.World]:
        made.append(testing.threads(n, **knobs))
        return made[-1]

    yield make
    for worlds in made:
        testing.run(worlds, hpccoll.World.shutdown)


@pytest.fixture
def heard(capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """`heard(pattern)` waits until stderr matches the pattern, and returns the whole text so far."""
    said = ""

    def wait(pattern: str) -> str:
        nonlocal said
        deadline = time.monotonic() + 60
        while not re.search(pattern, said):
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
            said += capfd.readouterr().err
        return said

    return wait


def names_in_shm() -> set[Path]:
    return set(Path("/dev/shm").glob("hpccoll-*"))


@pytest.fixture
def leaves_nothing_in_shm() -> Iterator[None]:
    """Check that no name stays in /dev/shm that appears during the test; those of other tests disappear soon."""
    before = names_in_shm()
    yield
    left, deadline = names_in_shm() - before, time.monotonic() + 60
    while left := left & names_in_shm():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
