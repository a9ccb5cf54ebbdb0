# SPDX-License-Identifier: Apache-2.0
"""The kernels' benchmark runs, and verifies what it measures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / "kernels.py"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_benchmark_verifies_its_sums(tmp_path: Path) -> None:
    out = tmp_path / "results"
    command = [
        sys.executable,
        PROGRAM,
        "--sizes",
        "4096",
        "--seconds",
        "0",
        "--kernels",
        "portable",
        "--out",
        out,
    ]
    done = subprocess.run(command, timeout=110, text=True, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(results) > 20
    assert all(min(r["seconds"]) > 0 and min(r["memcpy"]) > 0 for r in results)
