# SPDX-License-Identifier: Apache-2.0
"""Real jobs in which the ranks of a node take turns: among more than 8 nodes, which this machine acts as."""

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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wire", ["none", "fp16"])
def test_sums_are_those_of_integers(monkeypatch: pytest.MonkeyPatch, wire: str) -> None:
    """float16 has all integers below 2048, so no rounding hides a wrong element."""
    monkeypatch.setenv("HPCCOLL_WIRE", wire)
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "18", "--nodes", "9", "--timeout", "100"]
    done = subprocess.run([*command, sys.executable, "-P", "-c", JOB], capture_output=True, text=True, timeout=110,
                          check=False)  # fmt: skip
    assert done.returncode == 0 and "all sums are exact" in done.stdout, done.stdout + done.stderr
