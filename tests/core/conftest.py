# SPDX-License-Identifier: Apache-2.0
"""Makes this folder's programs.py importable by its tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts' answers anew")
