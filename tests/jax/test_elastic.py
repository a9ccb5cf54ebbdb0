# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs whose ranks hear of a loss from a compiled program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("way", ["is killed", "raises"])
def test_training_goes_on_when_a_rank_is_lost_and_when_one_comes(way: str, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", "3", "--min-np", "2", "--timeout", "150", "python"]
    done = subprocess.run(
        [*command, "-P", Path(__file__).with_name("elastic_steps.py"), way, tmp_path / "victim"],
        env={**os.environ, "HPCCOLL_TRACE_DIR": "none"}, text=True, check=False, timeout=180,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "the weights of 12 or more steps, with 3 ranks at the end" in done.stdout, done.stdout
    assert "rank 2 (host localhost, slot 2) was lost" in done.stdout
