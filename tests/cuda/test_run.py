# SPDX-License-Identifier: Apache-2.0
"""The script for the first machine with a card does all its steps, with the fakes in the place of driver and NCCL."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDS_A_CARD = {"found-device"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_script_for_a_card(fake_cuda: Path, fake_nccl: Path, tmp_path: Path) -> None:
    libraries = {"HPCCOLL_CUDA_LIBRARY": str(fake_cuda), "HPCCOLL_NCCL_LIBRARY": str(fake_nccl)}
    run = subprocess.run(
        [ROOT / "benchmarks" / "gpu" / "run.sh", tmp_path / "results"],
        env={**os.environ, **libraries, "QUICK": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    said = run.stdout.splitlines()
    assert {line.split()[0] for line in said if "FAILED" in line} <= NEEDS_A_CARD, run.stdout + run.stderr
    rates = (tmp_path / "results" / "rates-staged.log").read_text()
    assert '"what": "sum, finished", "bytes": 65536' in rates
    assert "staged through the host" in rates
