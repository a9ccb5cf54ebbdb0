# SPDX-License-Identifier: Apache-2.0
"""A start with thousands of virtual ranks: what one rank receives and keeps. Bytes are judged, and no time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANKS = 3000


def steps(rank: int, *words: str) -> Any:
    """Measure the rank."""
    command = [sys.executable, "-P", ROOT / "benchmarks" / "start_up.py", "--rank", rank, "--ranks", RANKS, *words]
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["steps"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rank", [0, 6, 7])
def test_no_rank_reads_the_report_of_every_other(rank: int) -> None:
    """8 MB and 2 MB at 27,648 ranks are 300 and 75 bytes per rank; a report of each rank was 1.2 kB."""
    found = steps(rank, "--traced")
    assert found["init"]["received"] < 75 * RANKS
    assert found["init"]["peak"] < 300 * RANKS + (1 << 20)
    if rank != 7:
        assert found["subset"]["received"] == 0
        assert found["split"]["received"] <= 24 * RANKS
