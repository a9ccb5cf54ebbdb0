# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with another MPI than the tests' own environment has, kept in build/mpis.

They have an MPI and `_mpi` of their own, and the packages of this environment, which comes after theirs on the path.
Their hpccoll consists of links to the files of this one, because neither Python's part nor `_core` depends on an MPI.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy

import hpccoll

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mpis"
PACKAGE = Path(hpccoll.__file__).parent
BUILD = ("setup.py", "build_backend.py", "pyproject.toml", "README.md", "LICENSE")


def environment(wheel: str) -> Path:
    """Find the Python of an environment with a wheel of an MPI, as "mpich>=5,<6"; make it again if sources changed."""
    folder = FOLDER / re.sub(r"\W+", "-", wheel)
    stamp, now = folder / "made-of", sources(wheel)
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, wheel)
        stamp.write_text(now)
    return folder / "venv" / "bin" / "python"


def sources(wheel: str) -> str:
    """Hash the files that an environment is made of."""
    files = [*map(ROOT.joinpath, BUILD), *(ROOT / "ext").rglob("*.h"), *(ROOT / "ext" / "cython").iterdir()]
    parts = sorted(file.name for file in PACKAGE.iterdir())
    digest = hashlib.sha256(f"{wheel} {sys.prefix} {sys.version} {PACKAGE} {parts}".encode())
    for file in sorted([*files, *(ROOT / "ext").rglob("mpi.c"), Path(__file__)]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def make(folder: Path, wheel: str) -> None:
    """Make an environment, install its MPI, and build `_mpi` against that."""
    venv, tree = folder / "venv", folder / "tree"
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    (tree / "hpccoll").mkdir(parents=True)
    for file in PACKAGE.iterdir():
        if not file.name.startswith("_mpi."):
            (tree / "hpccoll" / file.name).symlink_to(file)
    for name in BUILD:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "ext", tree / "ext", ignore=shutil.ignore_patterns("_core.pyx"))
    (packages,) = venv.glob("lib/python3*/site-packages")
    (packages / "behind.pth").write_text(f"{tree}\n{Path(numpy.__file__).parents[1]}\n")
    run(python, "setup.py", "--quiet", "build_ext", "--inplace", cwd=tree)


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command of a Python, without the variables of the tests' own environment."""
    kept = {n: v for n, v in os.environ.items() if not re.match("VIRTUAL_ENV|PYTHON|MPI|OMPI_|OPAL_", n)}
    kept["PATH"] = f"{Path(str(command[0])).parent}:{kept['PATH']}"
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=kept, timeout=300, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"
