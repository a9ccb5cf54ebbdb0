# SPDX-License-Identifier: Apache-2.0
"""`hpccoll config`: prints where the C library of this installation is, for compilers and build systems."""

import argparse
import sys
from pathlib import Path

import hpccoll

PREFIX = Path(hpccoll.__file__).parent
"""The prefix of the library, with include/ and lib/."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll config`."""
    parser = commands.add_parser("config", help="flags to build programs of C, C++ and Fortran with hpccoll")
    for option, text in (
        ("--cflags", "flags for the compiler of C or C++"),
        ("--libs", "flags for the linker"),
        ("--fortran", "source files of the Fortran module, which are compiled with the program"),
        ("--prefix", "the folder that has include and lib"),
        ("--cmakedir", "for CMake: -Dhpccoll_DIR=..."),
        ("--pkgconfigdir", "for pkg-config: PKG_CONFIG_PATH=..."),
    ):
        parser.add_argument(option, action="store_true", help=text)
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Print the requested flags, in one line.

    :returns: the exit status, 1 if this installation has no library or nothing was requested
    """
    library = PREFIX / "lib"
    if not (library / "libhpccoll.so.1").exists():
        print(f"hpccoll config: {library} has no libhpccoll.so.1: install hpccoll again", file=sys.stderr)
        return 1
    include = PREFIX / "include"
    facts = {
        "cflags": f"-I{include}",
        "libs": f"-L{library} -Wl,-rpath,{library} -lhpccoll",
        "fortran": f"{include / 'hpccoll.f90'} {include / 'hpccoll_fortran.c'}",
        "prefix": str(PREFIX),
        "cmakedir": str(library / "cmake" / "hpccoll"),
        "pkgconfigdir": str(library / "pkgconfig"),
    }
    words = [fact for option, fact in facts.items() if getattr(arguments, option)]
    if not words:
        print(f"hpccoll config: say what: {', '.join(f'--{option}' for option in facts)}", file=sys.stderr)
        return 1
    print(*words)
    return 0
