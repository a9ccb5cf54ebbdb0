# SPDX-License-Identifier: Apache-2.0
"""Real jobs on more nodes and ranks than this machine has: ranks that take turns, and carriers of an alltoall."""

import subprocess
import sys

import pytest

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


def run(ranks: int, nodes: int, program: str) -> str:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", str(ranks), "--nodes", str(nodes), "--timeout",
               "100", sys.executable, "-P", "-c", program]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wire", ["none", "fp16"])
def test_sums_are_those_of_integers(monkeypatch: pytest.MonkeyPatch, wire: str) -> None:
    """float16 has all integers below 2048, so no rounding hides a wrong element."""
    monkeypatch.setenv("HPCCOLL_WIRE", wire)
    assert "all sums are exact" in run(18, 9, JOB)


@pytest.mark.timeout(120)
def test_carriers_of_an_alltoall() -> None:
    """Few rows need one message per pair of nodes."""
    assert "every rank has its rows" in run(24, 4, ALLTOALL.replace("NODES", "4"))
