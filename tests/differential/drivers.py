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
NEEDED = {"fortran": ("fortran",), "cpp": ("cpp",), "languages": ("cpp", "fortran")}
"""The drivers of a front end."""
FAULTS = {
    "sections of Fortran": ("hpccoll_fortran.c", "x->dim[d].extent > 1 && ", ""),
    "rows of C++": ("hpccoll.hpp", "compression, row};", "compression, 1};"),
}
"""The file of the bindings that a fault changes, the words that it replaces, and what it writes there."""
COLLECTIVES = tuple(name for name in OPERATIONS if not BINDINGS[name].is_message)

OF_FORTRAN = {
    "in_or_both": "a", "in": "a", "both": "b", "out": "b", "out_or_none": "b", "op": "op", "root": "root",
    "splits": "splits", "world": "world", "name": "name", "prescale": "factors(1)", "postscale": "factors(2)",
    "ierror": "status", "request": "request", "plan": "plan",
}  # fmt: skip
OF_CPP = {
    "in_or_both": "in", "in": "in", "both": "out", "out_or_none": "out", "out": "out", "op": "op", "root": "c.root",
    "splits": "splits", "counts": "nullptr", "recv_counts": "nullptr", "args": "args",
}  # fmt: skip
"""What the drivers give for the parameters of the table."""


def problem(front_end: str) -> str:
    """Return why a front end is missing here, or ""."""
    compilers = [compiler for language in NEEDED.get(front_end, ()) for compiler in COMPILERS[language]]
    missing = [compiler for compiler in compilers if not shutil.which(compiler)]
    return f"{front_end}: skipped, there is no {' and no '.join(missing)}" if missing else ""


def in_fortran(name: str) -> str:
    """Return the cases of an operation in driver.f90: calls in all forms, with all their arguments by their names."""
    one = BINDINGS[name]
    more = {"": [], "async": ["request"], "init": ["plan"]}
    ends = {"": [], "async": ["call hpccoll_wait(request, ended)"], "init": ["call finish(plan, ended)"]}
    lines = []
    for form in one.forms:
        own = ["world", *one.options(form), "ierror", *more[form]]
        columns = one.in_order("fortran", "init" if form == "init" else "", own)
        given = [
            f"{re.sub(r'.* :: |[(].*', '', PARAMETERS[column]['fortran'])}={OF_FORTRAN[column]}"
            for column in columns
            if column in OF_FORTRAN and (column != "splits" or name in SPLIT)
        ]
        listed = ", &\n          ".join(given)
        lines.append(f"      case ({case_of(name, form)})")
        lines.append(f"        call {one.function('' if form == 'async' else form)}( &\n          {listed})")
        lines += [f"        {end}" for end in ends[form]]
    return "\n".join(lines)


def case_of(name: str, form: str) -> int:
    """Return the number of a call in driver.f90."""
    return 3 * COLLECTIVES.index(name) + ["", "async", "init"].index(form)


def in_cpp(name: str) -> str:
    """Return the calls of an operation in driver.cpp: blocking, asynchronous, and a plan."""
    one = BINDINGS[name]

    def given(form: str) -> list[str]:
        # A plan has no name; what else stands in Args a barrier and a broadcast lack.
        args = ["args"] if form != "init" or one.options("init") or "out" in one.parameters else []
        columns = sorted(one.in_order("cpp", "", args), key=lambda column: OF_CPP[column] not in ("in", "out"))
        return ["{}" if column == "splits" and name not in SPLIT else OF_CPP[column] for column in columns]

    now = ", ".join(each for each in given("") if each != "out" or "out" not in one.parameters)
    calls = {
        "": f"keep(world.{name}({now}), out)" if "out" in one.parameters else f"world.{name}({now})",
        "async": f"wait(world.{name}_async({', '.join(given('async'))}))",
        "init": f"start(world.{name}_init({', '.join(given('init'))}))",
    }
    lines = [
        f'    if (what == "{name}" && form == "{form}")\n        return {calls[form]};'
        for form in calls
        if form in one.forms
    ]
    return "\n".join(lines)


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
        calls = [in_fortran(name) for name in COLLECTIVES]
        Path(folder, "driver.f90").write_text(completed("driver.f90", "      ! the calls", calls))
        glue = Path(folder, "hpccoll_fortran.c")
        sources = [str(INCLUDE / "hpccoll.f90"), "driver.f90", "hpccoll_fortran.o"]
        commands = [
            ["gcc", "-O1", "-fPIC", f"-I{INCLUDE}", "-c", str(glue if glue.exists() else INCLUDE / glue.name)],
            ["gfortran", "-O1", "-fPIC", "-shared", *sources, *linking],
        ]
    for command in commands:
        subprocess.run(command, cwd=folder, check=True)
