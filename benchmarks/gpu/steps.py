# SPDX-License-Identifier: Apache-2.0
"""The steps of run.py: their commands, what they need, how long they may take, and which run alone."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from found import Found

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-std=c11 -O2 -g -D_GNU_SOURCE= -pthread -Iext -Itests".split()


@dataclass(frozen=True)
class Step:
    name: str
    command: list[str]
    limit: int  # seconds
    needs: tuple[str, ...] = ()  # things (found.py), or steps
    env: dict[str, str] = field(default_factory=dict)
    alone: bool = False  # it measures, or several of its ranks need the GPU at once


def programs(folder: Path) -> list[Step]:
    """Return the steps that build the data plane as a library, and the C programs over it."""
    library, python = folder / "libplane.so", sys.executable
    sources = [str(f.relative_to(ROOT)) for layer in ("cuda", "transport") for f in ROOT.glob(f"ext/{layer}/**/*.c")]
    sources = [*sorted(set(sources) - {"ext/transport/net/mpi.c"}), "ext/core/reserve.c", "ext/core/status.c"]
    link = [f"-L{folder}", "-lplane", f"-Wl,-rpath,{folder}", "-ldl", "-lm"]
    files = {
        "contract-driver": ["tests/cuda/driver_contract.c"],
        "contract-nccl": ["tests/cuda/nccl_contract.c"],
        "kernels": ["benchmarks/gpu/kernels.c"],
        "rates": ["benchmarks/gpu/rates.c"],
        "sums": ["benchmarks/gpu/sums.c"],
        "suite": ["-DON_DEVICE", "tests/transport/hierarchy/hierarchy_driver.c"],
    }
    package = ROOT / "hpccoll"
    c_program = [
        "cc",
        *FLAGS,
        "-DWITHOUT_MPI",
        "-DON_DEVICE",
        "tests/capi/program.c",
        f"-L{package / 'lib'}",
        "-lhpccoll",
    ]
    c_program += [f"-Wl,-rpath,{package / 'lib'}", "-ldl", "-o", str(folder / "c-program")]
    plane = ["cc", *FLAGS, "-shared", "-fPIC", *sources, "-ldl", "-lm", "-o", str(library)]
    return [
        Step(
            "build-hpccoll",
            [python, "setup.py", "--quiet", "egg_info", "build_ext", "--inplace"],
            300,
            ("python",),
        ),
        Step("build-plane", plane, 300, ("cc",)),
        Step("build-c-program", c_program, 60, ("build-hpccoll",)),
        *(
            Step(f"build-{name}", ["cc", *FLAGS, *what, *link, "-o", str(folder / name)], 120, ("build-plane",))
            for name, what in files.items()
        ),
    ]


def questions(folder: Path, found: Found, quick: bool) -> list[Step]:
    """Return the steps that measure or check: short checks first, measurements before long checks."""
    return [*assumptions(folder, found), *measurements(folder, quick), *arrays(found), *jobs(folder, quick),
            *sanitizers(folder, found), *suite(folder, quick)]  # fmt: skip


def assumptions(folder: Path, found: Found) -> list[Step]:
    """Return the steps whose failures explain all others."""
    cuda, nccl = found.cuda_library, found.nccl_library
    return [
        Step("contract-driver", [str(folder / "contract-driver"), cuda], 60, ("gpu", "build-contract-driver")),
        Step("kernels", [str(folder / "kernels"), cuda], 60, ("gpu", "build-kernels")),
        Step(
            "contract-nccl", [str(folder / "contract-nccl"), cuda, nccl, "1", "all"], 60,
            ("gpu", "nccl", "build-contract-nccl"),
        ),
    ]  # fmt: skip


def measurements(folder: Path, quick: bool) -> list[Step]:
    repeats, mebibytes = ("3", "1") if quick else ("20", "1024")
    rates, built = [str(folder / "rates")], ("gpu", "build-hpccoll")
    pack = ["tiny"] if quick else ["1 MiB", "16 MiB", "resnet50", "2000 small", "gigabytes"]
    beside = [sys.executable, "benchmarks/beside.py"]
    beside += "--work copies --size 256 --products 2 --mebibytes 1 --repeats 2".split() if quick else []
    staging = launch(2, "benchmarks/staging.py", "--repeats", repeats, nodes=2)
    staging += ["--mebibytes", "1"] if quick else []
    peers = ["peers", "--repeats", repeats, "--mebibytes", "1" if quick else "256"]
    steps = [
        Step("rates-staged", [*rates, "staged", repeats, mebibytes], 120, ("gpu", "build-rates")),
        Step("rates-nccl", [*rates, "nccl_flat", repeats, mebibytes], 120, ("gpu", "nccl", "build-rates")),
        Step("sums", [str(folder / "sums"), repeats, "1" if quick else "64"], 60, ("gpu", "build-sums")),
        Step("pack", [sys.executable, "benchmarks/pack.py", *pack, "--repeats", repeats, "--json"], 180, built),
        *(
            Step(f"staging-{mode}", staging, 120, (*built, "mpi"), {"HPCCOLL_DEVICE_MODE": mode})
            for mode in ("staged", "mpi")
        ),
        *(
            Step(
                f"beside-{mode}", beside, 120, (*built, *(() if quick else ("torch",))),
                {"HPCCOLL_DEVICE_MODE": mode},
            )
            for mode in ("staged", "auto")
        ),
        *(
            Step(f"peers-{n}", launch(n, "benchmarks/gpu/torch_jobs.py", *peers), 240, (*built, "mpi", "torch"))
            for n in (1, 2)
        ),
    ]  # fmt: skip
    return [replace(step, alone=True) for step in steps]


def jobs(folder: Path, quick: bool) -> list[Step]:
    """Return the steps with trainings and with random programs, of Python and C."""
    with_mpi, seconds = ("gpu", "build-hpccoll", "mpi"), "5" if quick else "30"
    stemdl = "examples/stemdl/train.py --epochs 1 --samples 48 --validation 24 --folder".split()
    launched = [sys.executable, *"-m hpccoll run --launcher ssh --timeout 100 -np".split()]
    digits = "examples/digits/train.py --device cuda --folder".split()
    return [
        *(
            Step(f"torch-{n}", launch(n, "benchmarks/gpu/torch_jobs.py", "train"), 240, (*with_mpi, "torch"))
            for n in (1, 2, 4)
        ),
        *(
            Step(
                f"c-{mode}-{ranks}", [*launched, str(ranks), str(folder / "c-program"), "1", "20" if quick else "200"],
                120, ("gpu", "build-c-program", *needs), {"HPCCOLL_DEVICE_MODE": mode},
            )
            for mode, ranks, needs in (("staged", 2, ()), ("auto", 1, ("nccl",)))
        ),
        Step("jax-2", launch(2, "benchmarks/gpu/jax_job.py"), 240, (*with_mpi, "jax")),
        *(
            Step(
                f"programs-{mode}", launch(3, "benchmarks/gpu/programs.py", seconds, nodes=2), 240,
                (*with_mpi, "cupy"), {"HPCCOLL_DEVICE_MODE": mode},
            )
            for mode in ("staged", "mpi")
        ),
        Step(
            "training", launch(2, *stemdl, str(folder / "stemdl"), nodes=2), 240, (*with_mpi, "torch", "demo")
        ),
        Step("digits", launch(2, *digits, str(folder / "digits")), 240, (*with_mpi, "cupy", "demo")),
    ]  # fmt: skip


def sanitizers(folder: Path, found: Found) -> list[Step]:
    check = ["compute-sanitizer", "--error-exitcode", "9"]
    kernels, needs = [str(folder / "kernels"), found.cuda_library], ("compute-sanitizer", "kernels")
    return [
        Step("sanitizer", [*check, *kernels], 180, needs),
        Step("sanitizer-races", [*check, "--tool", "racecheck", *kernels], 180, needs),
    ]


def launch(ranks: int, *program: str, nodes: int = 1) -> list[str]:
    """Return the command of a job."""
    run = f"-m hpccoll run -np {ranks} --nodes {nodes} --timeout 240".split()
    return [sys.executable, *run, sys.executable, *program]


def arrays(found: Found) -> list[Step]:
    """Return the steps with whole jobs: every operation and type, 1, 2 and 4 ranks."""
    program = [sys.executable, "benchmarks/gpu/arrays.py"]
    return [
        Step(
            f"arrays-{library}-{ranks}", [*program, "--ranks", str(ranks), "--library", library], 300,
            (library, "build-hpccoll", "mpi"), alone=ranks > 1,
        )
        for ranks in (1, 2, 4)
        for library in ("cupy", "torch")
    ]  # fmt: skip


def suite(folder: Path, quick: bool) -> list[Step]:
    """Return the steps that compare every operation and type of the data plane, ranks as threads, with a reference."""
    program, cases, steps = str(folder / "suite"), "15" if quick else "150", []
    for mode in ("staged", "nccl"):
        for layout in ("0", "0,0", "0,0,1,1"):
            shared = ("nccl of 2.30 or later",) if mode == "nccl" and layout != "0" else ()
            needs = ("gpu", "build-suite", *(("nccl", *shared) if mode == "nccl" else ()))
            env = {"TEST_DEVICE_MODE": mode, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
            env |= {"NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0", "NCCL_MAX_CTAS": "1"}
            name = f"suite-{mode}-{layout}"
            steps.append(Step(name, [program, layout, "1", cases], 300, needs, env))
            chunks = [program, layout, "2", "15", "auto", "3000", "1"]
            steps.append(Step(f"{name}-chunks", chunks, 300, needs, env))
    return steps
