# SPDX-License-Identifier: Apache-2.0
"""Compiles driver.f90 and the Fortran module of hpccoll to one library, if there is a compiler."""

import shutil
import subprocess
from pathlib import Path

import hpccoll

FAULTS = {"sections of Fortran": ("x->dim[d].extent > 1 && ", "")}
"""The parts of hpccoll_fortran.c that a fault replaces."""


def problem() -> str:
    """Return why Fortran is missing here, or ""."""
    missing = [compiler for compiler in ("gfortran", "gcc") if not shutil.which(compiler)]
    return f"Fortran: skipped, there is no {' and no '.join(missing)}" if missing else ""


def build(made: Path, fault: str) -> None:
    """Compile the module and the driver; `fault`: one of plants.py."""
    include, driver = Path(hpccoll.__file__).parent / "include", Path(__file__).with_name("driver.f90")
    text = (include / "hpccoll_fortran.c").read_text()
    right, wrong = FAULTS.get(fault, ("", ""))
    assert right in text
    Path(made.parent, "hpccoll_fortran.c").write_text(text.replace(right, wrong) if right else text)
    for command in (
        ["gcc", "-O1", "-fPIC", f"-I{include}", "-c", "hpccoll_fortran.c"],
        ["gfortran", "-O1", "-fPIC", "-shared", str(include / "hpccoll.f90"), str(driver), "hpccoll_fortran.o",
         f"-L{include.parent / 'lib'}", "-lhpccoll", f"-Wl,-rpath,{include.parent / 'lib'}", "-o", str(made)],
    ):  # fmt: skip
        subprocess.run(command, cwd=made.parent, check=True)
