# SPDX-License-Identifier: Apache-2.0
"""The program that explores the memory model."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from explored import explorer


@pytest.fixture(scope="session")
def explore(build_c: Callable[..., Path]) -> Path:
    return explorer(build_c)
