# SPDX-License-Identifier: Apache-2.0
"""The C sources that the programs of this folder are compiled with."""

from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def library() -> list[str]:
    """The engine, the transports except MPI, and the loop."""
    folders = ("core", "transport", "loop")
    files = [file for folder in folders for file in glob(f"ext/{folder}/**/*.c", root_dir=ROOT, recursive=True)]
    return sorted(file for file in files if not file.endswith("/mpi.c"))
