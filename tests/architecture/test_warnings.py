# SPDX-License-Identifier: Apache-2.0
"""Every C file compiles without a warning, with gcc and clang, here and for the machines we cannot run on."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRICT = "-std=c11 -D_GNU_SOURCE= -Wall -Wextra -Wpedantic -Werror -Wno-overlength-strings -fsyntax-only -Iext".split()
SOURCES = sorted(f for f in (ROOT / "ext").rglob("*.c") if f.name != "mpi.c")
COMPILERS = (
    pytest.param("gcc", marks=pytest.mark.slow),  # compiles the programs of all tests with the same flags
    "clang",
    pytest.param("aarch64-linux-gnu-gcc", marks=pytest.mark.slow),
    pytest.param("powerpc64le-linux-gnu-gcc", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_warnings(compiler: str, needs: Callable[..., None]) -> None:
    needs(compiler)
    done = subprocess.run(
        [compiler, *STRICT, *map(str, SOURCES)], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
