# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with different MPIs, kept in build/mpis.

All other packages are those of the tests' environment, which is later on the path. They also use the tests' hpccoll: it
is built without an MPI, and uses the MPI that it finds.
"""

import fcntl
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


def environment(wheel: str) -> Path:
    """Find the Python of an environment with a wheel of an MPI, as "mpich>=5,<6"; make it if there is none."""
    key = hashlib.sha256(f"{wheel} {sys.prefix} {sys.version} {PACKAGE} {Path(__file__).read_text()}".encode())
    folder = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', wheel)}-{key.hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as turn:  # another worker may be making it
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, wheel, behind=(PACKAGE.parent,))
            (folder / "made").touch()
    return folder / "bin" / "python"


def make(folder: Path, *packages: object, behind: tuple[Path, ...] = ()) -> Path:
    """Make an environment, install packages into it, and let it see `behind` and the tests' own packages.

    :returns: its Python
    """
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    if packages:
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", *packages)
    (site,) = folder.glob("lib/python3*/site-packages")
    others = (*behind, Path(numpy.__file__).parents[1])
    (site / "behind.pth").write_text("".join(f"{path}\n" for path in others))
    return python


def run(*command: object, cwd: Path | str = "/", timeout: float = 300, path: str = "", **variables: str) -> str:
    """Run a command of an environment without the variables of the tests' environment; return its output."""
    kept = {n: v for n, v in os.environ.items() if not re.match("VIRTUAL_ENV|PYTHON|MPI|OMPI_|OPAL_|PMIX_|PRTE_", n)}
    kept["PATH"] = path or f"{Path(str(command[0])).parent}:{kept['PATH']}"
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**kept, **variables}, timeout=timeout, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout
