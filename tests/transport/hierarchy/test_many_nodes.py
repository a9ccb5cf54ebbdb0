# SPDX-License-Identifier: Apache-2.0
"""Real jobs on many nodes: ranks take turns, broadcasts and reduces go in stages, and alltoalls have carriers."""

import subprocess
import sys

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

LAYOUTS = [(10, 10), *(pytest.param(ranks, 9, marks=pytest.mark.slow) for ranks in (18, 22))]

JOB = """
import numpy as np
import hpccoll

hpccoll.init()
rank, size = hpccoll.rank(), hpccoll.size()
draw = np.random.default_rng(7)
for n in (30_000, 120_000, 400_000):  # a turn, or rails in float16; a few turns; many
    base = draw.integers(-50, 50, n)
    mine = base + rank
    for dtype in (np.float32, np.float64, np.int32):
        found = hpccoll.allreduce(mine.astype(dtype), op=hpccoll.SUM)
        assert np.array_equal(found, (base * size + size * (size - 1) // 2).astype(dtype)), (n, dtype)
    assert np.array_equal(hpccoll.allreduce(mine, op=hpccoll.MAX), base + size - 1), n
if rank == 0:
    print("all sums are exact")
hpccoll.shutdown()
"""

ALLTOALL = """
import numpy as np
import hpccoll

hpccoll.init()
rank, size = hpccoll.rank(), hpccoll.size()
world = hpccoll.World(verbose=0)


def splits_of(r, most):
    return (np.arange(size) * 7 + r) % (most + 1)


def rows_of(r, most):
    return np.concatenate([np.full(n, r * size + q) for q, n in enumerate(splits_of(r, most))])


def sent():
    stats = world.stats()
    return stats["net_sent_messages"] - stats["control_messages_net"]


for most in (0, 1, 40, 2000):  # rows of 8 bytes: all of them few; all; all; most of them many
    before = sent()
    received, counts = world.alltoall(rows_of(rank, most), splits_of(rank, most), name="x")
    messages = sum(world.allgather_object(sent() - before))
    assert np.array_equal(counts, [splits_of(r, most)[rank] for r in range(size)]), most
    assert np.array_equal(received, np.repeat(np.arange(size) * size + rank, counts)), most
    assert most == 2000 or messages == NODES * (NODES - 1), (most, messages)
if rank == 0:
    print("every rank has its rows")
world.shutdown()
hpccoll.shutdown()
"""


BROADCASTS = """
import numpy as np
import hpccoll

hpccoll.init()
rank, size = hpccoll.rank(), hpccoll.size()
sizes = (1, 5_000, 30_011, 100_003, 400_000, 1_500_007)  # down the tree; in one chunk; in turns; down the tree again
def check(world, root, n, dtype, draw):
    values = draw.integers(0, 100, n).astype(dtype)
    mine = values.copy() if world.rank == root else np.zeros(n, dtype)
    kept = mine.copy()
    out = np.zeros(n, dtype)
    assert world.broadcast(mine, root, out=out) is out
    assert np.array_equal(out, values), (n, root, dtype)
    assert np.array_equal(mine, kept), "the input was written"
    world.broadcast(mine, root, out=mine)  # in place
    assert np.array_equal(mine, values), (n, root, dtype)

draw = np.random.default_rng(7)
for n in sizes:
    for root in (0, 1, size // 2, size - 1):
        check(hpccoll.world(), root, n, np.uint8 if n % 2 else np.float32, draw)

# many at once, and each from another root, out of order
arrays = [np.full(20_000 + i, i if rank == i else 0, np.int32) for i in range(size)]
order = np.random.default_rng(rank).permutation(size)
handles = [hpccoll.broadcast_async(arrays[i], i, name=f"from {i}", out=arrays[i]) for i in order]
for handle in handles:
    handle.wait()
assert all((array == i).all() for i, array in enumerate(arrays))

# a set of every rank but some, whose nodes are uneven
part = hpccoll.world().split(int(rank % 5 == 1))
for root in (0, part.size - 1):
    check(part, root, 60_001, np.float64, np.random.default_rng(9))

# the last ranks have joined; the others need no results of theirs
if rank < size - 3:
    for root in (0, 2):
        found = hpccoll.broadcast(np.arange(50_000) * (rank == root), root)
        assert np.array_equal(found, np.arange(50_000))
hpccoll.join()
if rank == 0:
    print("all have the root's data")
hpccoll.shutdown()
"""


REDUCES = """
import numpy as np
import hpccoll

hpccoll.init()
rank, size = hpccoll.rank(), hpccoll.size()
draw = np.random.default_rng(7)


def check(world, root, n, dtype, op):
    \"\"\"Against NumPy's float64; integers below 100 and their means, which each of these types holds.\"\"\"
    inputs = draw.integers(0, 100 // world.size, (world.size, n), dtype=np.uint8)
    mine = inputs[world.rank].astype(dtype)
    kept = mine.copy()
    found = world.reduce(mine, op=op, root=root)
    assert np.array_equal(mine, kept), "the input was written"
    assert (found is None) == (world.rank != root)
    if world.rank == root:
        wide = inputs.astype(np.float64)
        expected = {hpccoll.SUM: wide.sum, hpccoll.MAX: wide.max, hpccoll.AVERAGE: wide.mean}[op](axis=0)
        error = np.abs(found.astype(np.float64) - expected).max()
        assert error <= 8 * np.finfo(dtype).eps * expected.max(), (n, root, dtype, op, error)
        assert op == hpccoll.AVERAGE or error == 0, (n, root, dtype, op, error)


for n in (1, 5_000, 30_011, 100_003, 400_000, 1_500_007):  # up the tree; in one chunk; in turns; up the tree again
    for root in (0, 1, size // 2, size - 1) if n < 100_000 else (1, size - 1):
        for op in (hpccoll.SUM, hpccoll.AVERAGE, hpccoll.MAX) if n < 100_000 else (hpccoll.AVERAGE,):
            check(hpccoll.world(), root, n, np.float16 if n % 2 else np.float32, op)

# many at once, and each to another root, out of order
arrays = [np.full(20_000 + i, i, np.int32) for i in range(size)]
order = np.random.default_rng(rank).permutation(size)
handles = {i: hpccoll.reduce_async(arrays[i], root=i, op=hpccoll.SUM, name=f"to {i}") for i in order}
for i, handle in handles.items():
    found = handle.wait()
    assert found is None if i != rank else (found == i * size).all()

# a set of every rank but some, whose nodes are uneven
part = hpccoll.world().split(int(rank % 5 == 1))
for root in (0, part.size - 1):
    check(part, root, 60_001, np.float64, hpccoll.SUM)

# the last ranks have joined
if rank < size - 3:
    for root in (0, 2):
        found = hpccoll.reduce(np.arange(50_000), root=root, op=hpccoll.SUM)
        assert found is None if rank != root else np.array_equal(found, np.arange(50_000) * (size - 3))
hpccoll.join()
if rank == 0:
    print("every root has the sum")
hpccoll.shutdown()
"""


def run_job(job: str, *options: str) -> str:
    """Run a program on all ranks; return its output, and that of a failure."""
    command = [sys.executable, "-P", "-m", "hpccoll", "run", *options, "--timeout", "100"]
    done = subprocess.run([*command, sys.executable, "-P", "-c", job], capture_output=True, text=True, timeout=110,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wire", [pytest.param("none", marks=pytest.mark.slow), "fp16"])
def test_sums_are_those_of_integers(monkeypatch: pytest.MonkeyPatch, wire: str) -> None:
    """float16 has all integers below 2048, so no rounding hides a wrong element."""
    monkeypatch.setenv("HPCCOLL_WIRE", wire)
    assert "all sums are exact" in run_job(JOB, "-np", "18", "--nodes", "9")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("ranks", "nodes"), LAYOUTS)
def test_broadcasts_give_the_roots_data(ranks: int, nodes: int) -> None:
    """Even and uneven nodes, nodes of one rank, any root, sets of some ranks, joined ranks."""
    assert "all have the root's data" in run_job(BROADCASTS, "-np", str(ranks), "--nodes", str(nodes))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nodes", ["2+1+1+3+1+1+2+1+1", "+".join("1" * 11)])
def test_broadcasts_over_the_net_of_threads(nodes: str) -> None:
    """Uneven nodes, of which nine is no power of two, and eleven of one rank, a prime; any root."""
    ranks = sum(map(int, nodes.split("+")))
    worlds = testing.threads(ranks, nodes=nodes)

    def program(world: hpccoll.World) -> None:
        for root in range(ranks):
            n = 20_000 + 9_001 * root
            given = np.arange(n, dtype=np.int32) * (root + 1)
            found = world.broadcast(given if world.rank == root else np.zeros(n, np.int32), root)
            assert np.array_equal(found, given), (root, world.rank)

    testing.run(worlds, program)
    testing.run(worlds, hpccoll.World.shutdown)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("ranks", "nodes"), LAYOUTS)
def test_reduces_give_the_root_the_sum(ranks: int, nodes: int) -> None:
    """Even and uneven nodes, nodes of one rank, any root, sets of some ranks, joined ranks."""
    assert "every root has the sum" in run_job(REDUCES, "-np", str(ranks), "--nodes", str(nodes))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nodes", ["2+1+1+3+1+1+2+1+1", "+".join("1" * 11)])
def test_reduces_over_the_net_of_threads(nodes: str) -> None:
    """Uneven nodes, of which nine is no power of two, and eleven of one rank, a prime; any root."""
    ranks = sum(map(int, nodes.split("+")))
    worlds = testing.threads(ranks, nodes=nodes)

    def program(world: hpccoll.World) -> None:
        for root in range(ranks):
            n = 20_000 + 9_001 * root
            found = world.reduce(np.arange(n, dtype=np.int32) + world.rank, op=hpccoll.SUM, root=root)
            expected = np.arange(n, dtype=np.int32) * ranks + ranks * (ranks - 1) // 2
            assert found is None if world.rank != root else np.array_equal(found, expected), (root, world.rank)

    testing.run(worlds, program)
    testing.run(worlds, hpccoll.World.shutdown)


@pytest.mark.timeout(120)
def test_carriers_of_an_alltoall() -> None:
    """Few rows need one message per pair of nodes."""
    assert "every rank has its rows" in run_job(ALLTOALL.replace("NODES", "4"), "-np", "24", "--nodes", "4")
