# SPDX-License-Identifier: Apache-2.0
"""`hpccoll --version` and `python -m hpccoll --version`."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", [[Path(sys.executable).with_name("hpccoll")], [sys.executable, "-m", "hpccoll"]])
def test_version(command: list[str | Path]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"hpccoll {metadata.version('hpccoll')}\n"), done.stderr
