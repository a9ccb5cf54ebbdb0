# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed pass with backend "hpccoll"; torchs_own.py says what is left out and why."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("torchs_own.py")
SOME = [
    "test_DistributedDataParallelCPU", "test_all_gather_coalesced_simple", "test_all_reduce_sum_async",
    "test_all_to_all_single_unequal_split", "test_broadcast", "test_gather", "test_irecv",
    "test_reduce_sum", "test_scatter", "test_send_recv_any_source",
]  # fmt: skip


def run(ranks: int, *names: str) -> str:
    """Under torchrun, so through its store and shared memory; the last line counts."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), str(SCRIPT), *names,
    ]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, timeout=1500, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_some() -> None:
    counts = re.search(r"(\d+) ok, (\d+) skip, 0 excluded, 0 FAIL", run(2, *SOME))
    assert counts
    assert int(counts[1]) == len(SOME)


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_all() -> None:
    counts = re.search(r"(\d+) ok, \d+ skip, \d+ excluded, 0 FAIL", run(3))
    assert counts
    assert int(counts[1]) > 80
