# SPDX-License-Identifier: Apache-2.0
"""One libhpccoll.so under programs of C that were built with other MPIs than the tests'."""

from pathlib import Path

import pytest
from mpis import PACKAGE, ROOT, environment, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def compiled(wheel: str, compiler: str, folder: Path) -> Path:
    """tests/capi/program.c, built with a compiler of an MPI's wheel."""
    tools = environment(wheel).parent
    program = folder / compiler
    library = [f"-I{PACKAGE}/include", f"-L{PACKAGE}/lib", f"-Wl,-rpath,{PACKAGE}/lib", "-lhpccoll"]
    source = ["-std=c11", "-O1", "-Iext", "tests/capi/program.c", "-o", program]
    run(tools / compiler, *source, *library, cwd=ROOT, path=f"{tools}:/usr/bin:/bin")
    return program


@pytest.mark.parametrize("compiler", ["mpicc", "mpicc_abi"])
def test_mpich_and_the_abi_of_mpi_5(compiler: str, tmp_path: Path) -> None:
    program = compiled("mpich>=5,<6", compiler, tmp_path)
    launch = environment("mpich>=5,<6").parent / "mpiexec"
    assert "fine\n" in run(launch, "-n", 3, program, 3, 60, "threads", timeout=120)


def test_intel_mpi_with_a_program_of_mpich(tmp_path: Path) -> None:
    """They share an ABI: the program's own RUNPATH gives way to LD_LIBRARY_PATH."""
    program = compiled("mpich>=5,<6", "mpicc", tmp_path)
    intel = environment("impi-rt").parents[1]
    where = {"LD_LIBRARY_PATH": f"{intel}/lib:{intel}/lib/libfabric", "I_MPI_ROOT": str(intel)}
    output = run(intel / "bin" / "mpiexec", "-n", 3, program, 3, 60, timeout=120, **where)
    assert "fine\n" in output
