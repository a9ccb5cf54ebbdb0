# SPDX-License-Identifier: Apache-2.0
"""Every C file compiles without a warning, with gcc and clang, here and for the machines we cannot run on."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRICT = "-std=c11 -D_GNU_SOURCE= -Wall -Wextra -Wpedantic -Werror -Wno-overlength-strings -fsyntax-only -Iext".split()
SOURCES = sorted(f for f in (ROOT / "ext").rglob("*.c") if f.name != "mpi.c")
FOR_CLANG = [file for file in SOURCES if file.parent.name == "kernels"]
"""Those that have lines for clang alone, some by their headers."""
COMPILERS = (
    pytest.param("gcc", marks=pytest.mark.slow),  # compiles the programs of all tests with the same flags
    pytest.param("clang", marks=pytest.mark.slow),
    pytest.param("aarch64-linux-gnu-gcc", marks=pytest.mark.slow),
    pytest.param("powerpc64le-linux-gnu-gcc", marks=pytest.mark.slow),
)


def check(compiler: str, sources: list[Path]) -> None:
    done = subprocess.run(
        [compiler, *STRICT, *map(str, sources)], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_warnings(compiler: str, needs: Callable[..., None]) -> None:
    needs(compiler)
    check(compiler, SOURCES)


def test_no_warnings_where_clang_reads_other_lines_than_gcc(needs: Callable[..., None]) -> None:
    needs("clang")
    lines = [f.parent.name for f in (ROOT / "ext").rglob("*.[ch]") if "__clang__" in f.read_text()]
    assert set(lines) == {"kernels"}
    check("clang", FOR_CLANG)
