# SPDX-License-Identifier: Apache-2.0
"""Many process sets, made and ended: nothing is left of them, and none finds what another one left."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

from hpccoll import testing


def held() -> tuple[int, int, int]:
    """The file descriptors, the mappings of shared memory, and the blocks of the files behind them."""
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/hpccoll-" in line]
    links = [Path("/proc/self/fd") / fd for fd in os.listdir("/proc/self/fd")]
    files = [link for link in links if os.path.islink(link) and "/hpccoll-" in os.readlink(link)]
    return len(links), len(maps), sum(file.stat().st_blocks for file in files)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("nodes", ["", "2"])
def test_thousands_leave_nothing(threads, nodes):
    def program(world):
        found = []
        for at in range(2000):
            part = (world.split(at % 3 % (world.rank + 1)), world.subset([0]), world.cart([2]))
            for made in part:
                if made:
                    made.shutdown()
            if at in (100, 1999):
                world.barrier()
                found.append(held() if world.rank == 0 else None)
                world.barrier()
        return found

    for found in testing.run(threads(2, nodes=nodes), program)[:1]:
        assert found[0] == found[1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("ranks", "nodes"), [(1, ""), (2, ""), (3, ""), (3, "2"), (4, "2+2")])
def test_a_set_finds_nothing_of_an_earlier_one(threads, ranks, nodes):
    """Disjoint halves make, use and end sets in a random order of their own, at the same time."""

    def program(world):
        half = world.split(world.rank % 2)
        choose = random.Random(world.rank % 2)
        open_sets = []
        for at in range(200):
            what = choose.choice(["make", "make", "use", "use", "end"])
            if what == "make" and len(open_sets) < 12:
                members = choose.sample(range(half.size), choose.randint(1, half.size))
                open_sets.append((half.subset(members), members))
            elif open_sets:
                place = choose.randrange(len(open_sets))
                made, members = open_sets[place]
                if what == "end":
                    del open_sets[place]
                    if made:
                        made.shutdown()
                    continue
                length = choose.choice([1, 1, 300, 5000, 300_000])
                if made:
                    x = np.full(length, float(at + half.rank))
                    assert (made.allreduce(x) == sum(at + rank for rank in members)).all()
                    assert made.allgather(np.array([half.rank])).tolist() == members

    testing.run(threads(ranks, nodes=nodes), program)
