# SPDX-License-Identifier: Apache-2.0
"""The contract of a net, over MPI between real processes; and what the MPI extension is made of."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program(build_c: Callable[..., Path]) -> Path:
    sys.path.insert(0, str(ROOT))
    try:
        from build_backend import find_mpicc
    finally:
        sys.path.remove(str(ROOT))
    mpicc = find_mpicc()
    assert mpicc, "no MPI compiler"
    return build_c(
        "tests/transport/net_contract_mpi.c",
        "ext/transport/net/mpi.c",
        "ext/transport/kernels/*.c",
        "ext/core/status.c",
        compiler=mpicc[0],
        flags=("-O0", *mpicc[1:]),
    )


def launch(ranks: int, *command: object, timeout: float = 110) -> str:
    run = [sys.executable, "-m", "hpccoll", "run", "-np", str(ranks), *map(str, command)]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # MPI libraries leave much behind
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


def test_needs_only_mpi_and_libc() -> None:
    import hpccoll._mpi

    dynamic = subprocess.run(["readelf", "-d", hpccoll._mpi.__file__], capture_output=True, text=True, check=True)
    needed = {
        line.split("[")[1].split("]")[0].split(".so")[0] for line in dynamic.stdout.splitlines() if "NEEDED" in line
    }
    assert needed <= {"libmpi", "libc", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert "libmpi" in needed


PROGRAM = """
from mpi4py import MPI
import hpccoll._mpi as mpi
net = mpi.net(MPI.COMM_WORLD, True)
assert mpi.net_counters(net) == (0, 0, 0) and mpi.net_text(net) == ""
assert mpi.thread_level() in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
assert mpi.library_path() == mpi.library_path_of(MPI.__file__) and mpi.library_version()
assert mpi.library_path_of("/nowhere.so") is None
del net
print("ok")
"""


def test_extension() -> None:
    """A capsule from an mpi4py communicator; both are on one library, and say which."""
    assert launch(2, "python", "-c", PROGRAM).count("ok") == 2
