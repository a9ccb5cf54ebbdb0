# SPDX-License-Identifier: Apache-2.0
"""Compiles driver.f90 and the Fortran module of hpccoll to one library, if there is a compiler."""

import shutil
import subprocess
from pathlib import Path

import hpccoll


def problem() -> str:
    """Return why Fortran is missing here, or ""."""
    missing = [compiler for compiler in ("gfortran", "gcc") if not shutil.which(compiler)]
    return f"Fortran: skipped, there is no {' and no '.join(missing)}" if missing else ""


def build(made: Path) -> None:
    """Compile the module and the driver."""
    include, driver = Path(hpccoll.__file__).parent / "include", Path(__file__).with_name("driver.f90")
    for command in (
        ["gcc", "-O1", "-fPIC", f"-I{include}", "-c", str(include / "hpccoll_fortran.c"), "-o", "hpccoll_fortran.o"],
        ["gfortran", "-O1", "-fPIC", "-shared", str(include / "hpccoll.f90"), str(driver), "hpccoll_fortran.o",
         f"-L{include.parent / 'lib'}", "-lhpccoll", f"-Wl,-rpath,{include.parent / 'lib'}", "-o", str(made)],
    ):  # fmt: skip
        subprocess.run(command, cwd=made.parent, check=True)
