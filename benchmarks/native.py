# SPDX-License-Identifier: Apache-2.0
"""Compiles the C programs of this folder, which measure the transport below the API."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TRANSPORT = ROOT / "ext" / "transport"


def build(name: str, sources: Sequence[Path], folders: Sequence[Path], compiler: str) -> Path:
    """Compile NAME.c and these sources of the transport, as the product is compiled, to build/benchmarks."""
    program = ROOT / "build" / "benchmarks" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    flags = [*"-std=c11 -O3 -DNDEBUG -D_GNU_SOURCE -pthread".split(), *(f"-I{folder}" for folder in folders)]
    files = [HERE / f"{name}.c", *sources, ROOT / "ext" / "core" / "status.c"]
    subprocess.run([compiler, *flags, *map(str, files), "-lm", "-o", str(program)], check=True)
    return program
