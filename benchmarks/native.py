# SPDX-License-Identifier: Apache-2.0
"""Compiles the C programs of this folder, which measure the layers below the API."""

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = ROOT / "build" / "benchmarks"


def build(compiler: str, name: str, sources: str, *more: str) -> Path:
    """Compile NAME.c with the flags of the library and these sources of ext, into build/benchmarks.

    :param sources: patterns
    :param more: options for the compiler
    """
    OUT.mkdir(parents=True, exist_ok=True)
    files = [
        path for pattern in sources.split() for path in sorted((ROOT / "ext").glob(pattern)) if path.name != "mpi.c"
    ]
    flags = [*"-std=c11 -O3 -DNDEBUG -D_GNU_SOURCE -pthread".split(), f"-I{ROOT / 'ext'}", *more]
    words = [compiler, *flags, HERE / f"{name}.c", *files, "-lm", "-o", OUT / name]
    subprocess.run([str(word) for word in words], check=True)
    return OUT / name
