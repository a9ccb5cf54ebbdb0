# SPDX-License-Identifier: Apache-2.0
"""The model, fitted to 1 and 2 hosts, against 4 hosts whose links limit them (cluster.sh; needs root)."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from namespaces import PROGRAMS, hosts_turn

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "predicted.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_four_hosts_are_predicted(
    uncounted: Callable[[], AbstractContextManager[None]], needs: Callable[..., None], tmp_path: Path
) -> None:
    """Where the wire limits, a prediction is off by a few percent on a quiet machine; here others may load it."""
    needs(*PROGRAMS)
    words = ["--rate", "100mbit", "--hosts", "1", "2", "4", "--sizes", "8,256K,1M", "--from-size", "256K"]
    words += ["--launches", "1", "--seconds", "1", "--within", "0.5", "--out", str(tmp_path)]
    with hosts_turn(uncounted):
        done = subprocess.run(
            [sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=500, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "largest error" in done.stdout and "beta" in done.stdout
