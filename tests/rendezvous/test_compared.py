# SPDX-License-Identifier: Apache-2.0
"""What ranks say about one thing, over each rendezvous and over a World: the same as by exchanging all values."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from stores import MemoryStore

from hpccoll import compared, objects, testing
from hpccoll.compared import NOBODY, Compared, from_list
from hpccoll.rendezvous import StoreRendezvous, ThreadGroup, ThreadRendezvous

SAID = [
    ["same"] * 5,
    ["a", "b", "a", "c", "b"],
    ["", "", "wrong", "", "worse"],
    [{"x": [1, None]}, {"x": [1, None]}, {"x": [2]}, {"x": []}, {"x": []}],
    list(range(5)),
]


def check(found: Compared[Any], said: list[Any]) -> None:
    assert list(found) == said
    assert [found[rank] for rank in range(len(said))] == said
    assert found.alike == all(one == said[0] for one in said)
    assert [found.first(i) for i in range(len(found.values))] == [said.index(value) for value in found.values]
    assert sorted(r for i in range(len(found.values)) for r in found.ranks(i)) == list(range(len(said)))
    assert found.like(3) == [rank for rank, one in enumerate(said) if one == said[3]]


@pytest.mark.parametrize("said", SAID)
def test_from_a_list(said: list[Any]) -> None:
    found = from_list(said, repr)
    check(found, said)
    check(found.map(lambda one: str(one) == str(said[0])), [one == said[0] for one in said])


def test_ranks_that_said_nothing() -> None:
    found = Compared(["a", "b"], 4, np.array([0, NOBODY, 1, 0]))
    assert list(found) == ["a", "b", "a"]
    assert list(found.map(len)) == [1, 1, 1]
    assert not found.map(len).alike


def test_index_orders_values_by_their_lowest_rank() -> None:
    first, of = compared.index(np.array([9, 3, 9, 1, 3]))
    assert first.tolist() == [0, 1, 3]
    assert of.tolist() == [0, 1, 0, 2, 1]


def together(make: Callable[[int], Any], said: list[Any]) -> None:
    def one(rank: int) -> None:
        rendezvous = make(rank)
        check(rendezvous.compare(said[rank]), said)
        assert rendezvous.numbers([rank, -(1 << 63)]).tolist() == [[r, -(1 << 63)] for r in range(len(said))]

    with ThreadPoolExecutor(len(said)) as pool:
        list(pool.map(one, range(len(said))))


@pytest.mark.parametrize("said", SAID)
def test_over_threads(said: list[Any]) -> None:
    group = ThreadGroup(len(said))
    together(lambda rank: ThreadRendezvous(group, rank), said)


@pytest.mark.parametrize("said", SAID)
def test_over_a_store(said: list[Any]) -> None:
    store = MemoryStore()
    together(lambda rank: StoreRendezvous(rank, len(said), store, timeout=30, secret="", host="here"), said)


@pytest.mark.parametrize("said", SAID)
def test_over_a_world(said: list[Any]) -> None:
    def program(world: Any) -> None:
        check(objects.compare(world.core, said[world.rank], "x", 30), said)
        gathered = objects.exchange(world.core, "y", np.array([world.rank, 7], np.uint8), 30)
        assert gathered.reshape(5, 2).tolist() == [[rank, 7] for rank in range(5)]

    testing.make_and_run(5, program)


OVER_MPI = f"""
import sys
sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
from mpi4py import MPI
from hpccoll.rendezvous import MpiRendezvous, roll_call
from test_compared import SAID, check
roll_call.FANOUT = 2  # two levels of the tree
rendezvous = MpiRendezvous(MPI.COMM_WORLD, 60.0)
for said in SAID:
    check(rendezvous.compare(said[rendezvous.rank]), said)
    assert rendezvous.allgather(said[rendezvous.rank]) == said
assert rendezvous.numbers([rendezvous.rank]).tolist() == [[rank] for rank in range(5)]
print("as they said", flush=True)
"""


def test_over_mpi() -> None:
    command = [sys.executable, "-m", "hpccoll", "run", "-np", "5", "--timeout", "100"]
    done = subprocess.run(
        [*command, sys.executable, "-c", OVER_MPI], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("as they said") == 5
