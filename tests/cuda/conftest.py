# SPDX-License-Identifier: Apache-2.0
"""Packages with NVIDIA's headers. Makes packer.py of the benchmarks importable."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
Build = Callable[..., Path]


@pytest.fixture(scope="session")
def packages() -> Build:
    """`packages("NAME==VERSION")`: a folder with these packages of PyPI, kept under build/tests."""

    def install(*names: str) -> Path:
        folder = ROOT / "build" / "tests" / "-".join(names).replace("==", "-")
        if not (folder / "done").exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
            subprocess.run([*pip, *names], check=True, timeout=400)
            (folder / "done").touch()
        return folder

    return install
