# SPDX-License-Identifier: Apache-2.0
"""Makes driver.f90 and driver.cpp one library each, with a call per operation that follows from bindings/table.toml."""

import re
import shutil
import subprocess
from pathlib import Path

from bindings_table import OPERATIONS as BINDINGS
from bindings_table import PARAMETERS
from differential.operations import OPERATIONS, SPLIT

import hpccoll

INCLUDE, LIBRARIES = (Path(hpccoll.__file__).parent / name for name in ("include", "lib"))
COMPILERS = {"fortran": ("gfortran", "gcc"), "cpp": ("g++",)}
FAULTS = {
    "sections of Fortran": ("hpccoll_fortran.c", "x->dim[d].extent > 1 && ", ""),
    "rows of C++": ("hpccoll.hpp", "compression, row};", "compression, 1};"),
}
"""The file of the bindings that a fault changes, the words that it replaces, and what it writes there."""
COLLECTIVES = tuple(name for name in OPERATIONS if not BINDINGS[name].is_message)

OF_FORTRAN = {
    "in_or_both": "a", "in": "a", "both": "b", "out": "b", "out_or_none": "b", "op": "op", "root": "root",
    "splits": "splits", "world": "world", "name": "name", "prescale": "factors(1)", "postscale": "factors(2)",
    "ierror": "status",
}  # fmt: skip
OF_CPP = {
    "in_or_both": "in", "in": "in", "both": "out", "out_or_none": "out", "out": "out", "op": "op", "root": "c.root",
    "splits": "splits", "counts": "nullptr", "recv_counts": "nullptr", "args": "args",
}  # fmt: skip
"""What the drivers give for the parameters of the table."""


def problem(language: str) -> str:
    """Return why a language is missing here, or ""."""
    missing = [compiler for compiler in COMPILERS.get(language, ()) if not shutil.which(compiler)]
    return f"{language}: skipped, there is no {' and no '.join(missing)}" if missing else ""


def in_fortran(number: int, name: str) -> str:
    """Return the case of an operation in driver.f90: a call with all its arguments by their names."""
    one = BINDINGS[name]
    options = ["world", *one.options(""), "ierror"]
    columns = [column for column in one.in_order("fortran", "", options) if column in OF_FORTRAN]
    given = [
        f"{re.sub(r'.* :: |[(].*', '', PARAMETERS[column]['fortran'])}={OF_FORTRAN[column]}"
        for column in columns
        if column != "splits" or name in SPLIT
    ]
    listed = ", &\n          ".join(given)
    return f"      case ({number})\n        call {one.function('')}( &\n          {listed})"


def in_cpp(name: str) -> str:
    """Return the calls of an operation in driver.cpp: one that waits, and an asynchronous one."""
    one = BINDINGS[name]
    columns = sorted(one.in_order("cpp", "", ["args"]), key=lambda column: OF_CPP[column] not in ("in", "out"))
    given = ["{}" if column == "splits" and name not in SPLIT else OF_CPP[column] for column in columns]
    later = f"wait(world.{name}_async({', '.join(given)}))"
    if "out" in columns:  # the blocking method returns it
        given.remove("out")
        now = f"keep(world.{name}({', '.join(given)}), out)"
    else:
        now = f"world.{name}({', '.join(given)})"
    return f'    if (what == "{name}")\n        return c.waits ? {now} : {later};'


def completed(driver: str, mark: str, calls: list[str]) -> str:
    """Return the text of a driver with the calls in the place of their mark."""
    text = Path(__file__).with_name(driver).read_text()
    assert mark in text
    return text.replace(mark, "\n".join(calls))


def with_fault(folder: Path, fault: str) -> None:
    """Write the file that a fault changes, if there is a fault: the compilers find it before the right one."""
    if fault in FAULTS:
        name, right, wrong = FAULTS[fault]
        text = (INCLUDE / name).read_text()
        assert right in text
        Path(folder, name).write_text(text.replace(right, wrong))


def build(language: str, folder: Path, fault: str) -> None:
    """Make `language`.so in a folder; `fault`: one of plants.py."""
    with_fault(folder, fault)
    linking = [f"-L{LIBRARIES}", "-lhpccoll", f"-Wl,-rpath,{LIBRARIES}", "-o", f"{language}.so"]
    if language == "cpp":
        calls = [in_cpp(name) for name in COLLECTIVES]
        Path(folder, "driver.cpp").write_text(completed("driver.cpp", "    // the calls", calls))
        strict = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror"]
        commands = [["g++", *strict, "-fPIC", "-shared", "-I.", f"-I{INCLUDE}", "driver.cpp", *linking]]
    else:
        calls = [in_fortran(number, name) for number, name in enumerate(COLLECTIVES)]
        Path(folder, "driver.f90").write_text(completed("driver.f90", "      ! the calls", calls))
        glue = Path(folder, "hpccoll_fortran.c")
        sources = [str(INCLUDE / "hpccoll.f90"), "driver.f90", "hpccoll_fortran.o"]
        commands = [
            ["gcc", "-O1", "-fPIC", f"-I{INCLUDE}", "-c", str(glue if glue.exists() else INCLUDE / glue.name)],
            ["gfortran", "-O1", "-fPIC", "-shared", *sources, *linking],
        ]
    for command in commands:
        subprocess.run(command, cwd=folder, check=True)
