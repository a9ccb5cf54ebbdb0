# SPDX-License-Identifier: Apache-2.0
"""hpccoll.mxnet: a program of several ranks, which checks itself."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")
CHECKS = PROGRAM.read_text().count("def check_")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 1), (3, 2)])
def test_program(ranks: int, nodes: int) -> None:
    launch = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", "550"]
    job = ["-np", str(ranks), "--nodes", str(nodes), sys.executable, PROGRAM]
    done = subprocess.run([*launch, *job], capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" passed") == CHECKS
