# SPDX-License-Identifier: Apache-2.0
"""Memory for results, in a process of its own: TensorFlow has to load our operations, if it is to know them."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(60)
def test_memory_of_results() -> None:
    """Shapes, alignment, what comes back, the most that is kept, threads."""
    program = Path(__file__).with_name("memory.py")
    done = subprocess.run([sys.executable, "-P", program], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed") == 4
