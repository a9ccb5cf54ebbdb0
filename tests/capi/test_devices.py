# SPDX-License-Identifier: Apache-2.0
"""Arrays in device memory over the C interface and the Fortran module, with the fake driver and the fake NCCL."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(200)
STRICT = ("-std=c11", "-O1", "-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iext")
Job = Callable[..., str]


@pytest.fixture(scope="module")
def random_program(mpicc, compiled) -> Path:
    return compiled(mpicc, *STRICT, "-DON_DEVICE", "-ldl", "tests/capi/program.c")


@pytest.fixture(scope="module")
def devices(mpicc, compiled) -> Path:
    return compiled(mpicc, *STRICT, "-ldl", "tests/capi/devices.c")


@pytest.fixture(scope="module")
def run(fake_cuda: Path, job) -> Job:
    """`run(2, program, "argument", mode="staged", order="lazy", nodes=2)`: with two GPUs."""

    def start(ranks: int, *command: object, mode: str = "staged", order: str = "lazy", **more: object) -> str:
        more = {"HPCCOLL_CUDA_LIBRARY": fake_cuda, "FAKE_CUDA_DEVICES": 2, **more}
        return job(ranks, *command, HPCCOLL_DEVICE_MODE=mode, FAKE_CUDA_ORDER=order, **more)

    return start


def slow(*values: object) -> object:
    """A layout whose code paths another one has, too."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(("ranks", "nodes", "order"), [slow(1, 1, "lazy"), (2, 1, "lazy"), (3, 2, "3")])
def test_random_programs(random_program: Path, run: Job, ranks: int, nodes: int, order: str) -> None:
    said = run(ranks, random_program, ranks, 60, order=order, nodes=nodes)
    assert "arrays in device memory: device 0 (0000:4a:00.0): staged through the host" in said and "fine\n" in said


LAYOUTS = [
    (2, 1, "auto", "NCCL .* over 2 ranks; what that lacks is staged"),
    slow(3, 2, "nccl", "NCCL .* of this node, messages between nodes from device memory"),
    slow(4, 2, "nccl_flat", "NCCL .* over 4 ranks"),
    slow(3, 1, "mpi", "MPI over 3 ranks, messages from device memory"),
    slow(2, 2, "auto", "MPI over 2 ranks, messages from device memory"),
]


@pytest.mark.parametrize(("ranks", "nodes", "mode", "way"), LAYOUTS)
def test_random_programs_over_nccl_and_mpi(
    random_program: Path, run: Job, fake_nccl: Path, ranks: int, nodes: int, mode: str, way: str
) -> None:
    said = run(
        ranks, random_program, ranks, 60, mode=mode, nodes=nodes, HPCCOLL_NCCL_LIBRARY=fake_nccl, FAKE_NCCL_LATE=2,
        NCCL_MULTI_RANK_GPU_ENABLE=1, HPCCOLL_GPU_AWARE_MPI="yes", HPCCOLL_DEVICE_SMALL=0,
    )  # fmt: skip
    assert re.search(f"arrays in device memory: .*{way}", said) and "fine\n" in said


@pytest.mark.parametrize(("ranks", "nodes", "order"), [slow(1, 1, "3"), slow(2, 1, "eager"), (3, 2, "lazy")])
def test_messages_sets_and_wrong_calls(devices: Path, run: Job, ranks: int, nodes: int, order: str) -> None:
    assert "fine\n" in run(ranks, devices, order=order, nodes=nodes)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "nodes", "mode"), [(2, 1, "auto"), (3, 2, "nccl")])
def test_messages_sets_and_wrong_calls_over_nccl(
    devices: Path, run: Job, fake_nccl: Path, ranks: int, nodes: int, mode: str
) -> None:
    nccl = {"HPCCOLL_NCCL_LIBRARY": fake_nccl, "NCCL_MULTI_RANK_GPU_ENABLE": 1}
    assert "fine\n" in run(ranks, devices, mode=mode, nodes=nodes, **nccl)


@pytest.mark.parametrize(("ranks", "nodes"), [slow(1, 1), (2, 1)])
def test_a_device_that_fails_is_an_error(devices: Path, run: Job, ranks: int, nodes: int) -> None:
    said = run(ranks, devices, "broken", nodes=nodes, FAKE_CUDA_FAIL="work:700:90")
    assert said.count("an illegal memory access was encountered (700)") >= ranks and "fine\n" in said


# ---- which Worlds ask the driver ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "cuda_library=/no/such",
            "not made: rank 0: the CUDA driver was not found: /no/such: .*unset HPCCOLL_CUDA_LIB",
        ),
        ("device=some", "device=some is not one of auto.local.none.NUMBER"),
        ("device=7", "not made: rank 0: there is no device 7: this process sees 2"),
        ("net=ucx device_mode=mpi", "HPCCOLL_DEVICE_MODE=mpi, and the net UCX does not move the memory of GPUs"),
        ("device=local", "; device memory of GPU 0 .0000:4a:00.0."),
        ("", "; device memory of 2 GPUs .CUDA 12.8, .*fake-cuda.so.; "),
    ],
)
def test_what_the_start_says(devices: Path, run: Job, options: str, said: str) -> None:
    """The error is the same on all ranks, which the program checks."""
    printed = run(2, devices, "start", options)
    assert re.search(said, printed) and "fine\n" in printed


@pytest.fixture(scope="module")
def system(fake_cuda: Path, build_c, tmp_path_factory) -> Path:
    """A folder with a libcuda.so.1, as a system has it."""
    folder = tmp_path_factory.mktemp("system")
    sources = [f"tests/cuda/fake/{name}.c" for name in ("cuda", "module", "pack_host", "sum_host")]
    made = build_c(*sources, flags=("-shared", "-Wl,-soname,libcuda.so.1"), name="fake-system-cuda.so")
    shutil.copy(made, folder / "libcuda.so.1")
    return folder


def test_a_driver_that_the_process_has_is_found(devices: Path, job, system: Path) -> None:
    """A World that was made before does not know it."""
    said = job(2, devices, "late", TEST_CUDA_LIBRARY=system / "libcuda.so.1", HPCCOLL_DEVICE_MODE="staged",
               FAKE_CUDA_DEVICES=2)  # fmt: skip
    before, after = [line for line in said.splitlines() if "(C): 2 ranks" in line]
    assert "device memory" not in before and "; device memory of 2 GPUs" in after and "fine\n" in said


HOST = """
import ctypes, sys
library, world, x = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p(), (ctypes.c_double * 4)()
assert library.hpccoll_world_alone(b"verbose=0", ctypes.byref(world)) == 0
assert library.hpccoll_allreduce(ctypes.c_void_p(-1), x, ctypes.c_int64(4), 12, 1, None, world) == 0
assert library.hpccoll_world_free(ctypes.byref(world)) == 0
print([line for line in open("/proc/self/maps") if "cuda" in line])
"""


def test_a_program_without_the_driver_does_not_get_it(system: Path) -> None:
    library = Path(__file__).resolve().parents[2] / "hpccoll" / "lib" / "libhpccoll.so.1"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(system)}
    command = [sys.executable, "-c", HOST, library]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


PYTHON = """
import ctypes, os, sys
import hpccoll
driver = ctypes.CDLL(os.environ["HPCCOLL_CUDA_LIBRARY"])
context, address, given = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
library = ctypes.CDLL(sys.argv[1])
library.hpccoll_last_error.restype = ctypes.c_char_p
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
with hpccoll.World(rendezvous=hpccoll.rendezvous.SingleProcess(), verbose=0) as world:
    of_c = ctypes.c_void_p(pointer(world.capsule(), b"hpccoll.world"))
    assert library.hpccoll_world_from_python(of_c, ctypes.byref(given)) == 0
    x = ctypes.c_void_p(address.value)
    assert library.hpccoll_allreduce(ctypes.c_void_p(-1), x, ctypes.c_int64(4), 12, 1, None, given) == -13
    print(library.hpccoll_last_error().decode())
"""


def test_a_world_of_python_refuses_them_in_c(fake_cuda: Path) -> None:
    library = Path(__file__).resolve().parents[2] / "hpccoll" / "lib" / "libhpccoll.so.1"
    environment = {**os.environ, "HPCCOLL_CUDA_LIBRARY": str(fake_cuda)}
    command = [sys.executable, "-P", "-c", PYTHON, library]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60)
    assert "allreduce: in lies in device memory: in a World of Python's, Python's functions take" in done.stdout, done
