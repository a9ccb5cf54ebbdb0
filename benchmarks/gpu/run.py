# SPDX-License-Identifier: Apache-2.0
"""Runs all tests and measurements for a machine with a GPU; those come first whose failures explain most.

    python benchmarks/gpu/run.py --check           prints what is here and what is missing, and runs nothing
    python benchmarks/gpu/run.py                   runs all steps that can run, except those that have passed
    python benchmarks/gpu/run.py --seconds 560     ends in time; the next call runs the remaining steps
    python benchmarks/gpu/run.py --only suite arrays --again

The folder (default: build/gpu) gets a log per step, and gpu.json, which is written again after every step: the machine,
each step's command, time and results, and the figures computed from them. --copy copies gpu.json and the packed logs to
another place after every step, so that no result is lost with the machine. HPCCOLL_CUDA_LIBRARY and
HPCCOLL_NCCL_LIBRARY may name other libraries (the tests' fakes); --quick has few cases and small sizes. The program
changes nothing outside of its folders.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from figures import figures  # noqa: E402
from found import Found  # noqa: E402

FLAGS = "-std=c11 -O2 -g -D_GNU_SOURCE= -pthread -Iext -Itests".split()
LEAST = 15
"""Remaining seconds below which no step begins."""
BUILT = {"passed", "there"}


@dataclass(frozen=True)
class Step:
    name: str
    command: list[str]
    limit: int  # seconds
    needs: tuple[str, ...] = ()  # things (found.py), or steps
    env: dict[str, str] = field(default_factory=dict)


# ---- the steps ---------------------------------------------------------------------------------------


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
        "suite": ["-DON_DEVICE", "tests/transport/hierarchy/hierarchy_driver.c"],
    }
    plane = ["cc", *FLAGS, "-shared", "-fPIC", *sources, "-ldl", "-lm", "-o", str(library)]
    return [
        Step(
            "build-hpccoll",
            [python, "setup.py", "--quiet", "egg_info", "build_ext", "--inplace"],
            300,
            ("python",),
        ),
        Step("build-plane", plane, 300, ("cc",)),
        *(
            Step(f"build-{name}", ["cc", *FLAGS, *what, *link, "-o", str(folder / name)], 120, ("build-plane",))
            for name, what in files.items()
        ),
    ]


def questions(folder: Path, found: Found, quick: bool) -> list[Step]:
    """Return the steps that measure or check: short ones first, measurements before long checks."""
    cuda, nccl, python = found.cuda_library, found.nccl_library, sys.executable
    repeats, mebibytes = ("3", "1") if quick else ("20", "1024")
    rates = [str(folder / "rates")]
    two = [python, "-m", "hpccoll", "run", "-np", "2", "--nodes", "2", "--timeout", "240", python]
    pack = ["tiny"] if quick else ["resnet50", "2000 small", "gigabytes"]
    beside = [python, "benchmarks/beside.py"]
    beside += "--work copies --size 256 --products 2 --mebibytes 1 --repeats 2".split() if quick else []
    staging = [*two, "benchmarks/staging.py", "--repeats", repeats]
    staging += ["--mebibytes", "1"] if quick else []
    training = [*two, "examples/stemdl/train.py", "--epochs", "1", "--folder", str(folder / "stemdl")]
    with_mpi = ("gpu", "build-hpccoll", "mpi")
    return [
        Step("contract-driver", [str(folder / "contract-driver"), cuda], 60, ("gpu", "build-contract-driver")),
        Step("kernels", [str(folder / "kernels"), cuda], 60, ("gpu", "build-kernels")),
        Step(
            "contract-nccl", [str(folder / "contract-nccl"), cuda, nccl, "1", "all"], 60,
            ("gpu", "nccl", "build-contract-nccl"),
        ),
        Step("rates-staged", [*rates, "staged", repeats, mebibytes], 120, ("gpu", "build-rates")),
        Step("rates-nccl", [*rates, "nccl_flat", repeats, mebibytes], 120, ("gpu", "nccl", "build-rates")),
        Step(
            "pack", [python, "benchmarks/pack.py", *pack, "--repeats", repeats, "--json"], 180,
            ("gpu", "build-hpccoll"),
        ),
        *(
            Step(f"staging-{mode}", staging, 120, with_mpi, {"HPCCOLL_DEVICE_MODE": mode})
            for mode in ("staged", "mpi")
        ),
        *(
            Step(
                f"beside-{mode}", beside, 120, ("gpu", "build-hpccoll", *(() if quick else ("torch",))),
                {"HPCCOLL_DEVICE_MODE": mode},
            )
            for mode in ("staged", "auto")
        ),
        Step(
            "sanitizer", ["compute-sanitizer", "--error-exitcode", "9", str(folder / "kernels"), cuda], 180,
            ("compute-sanitizer", "kernels"),
        ),
        Step(
            "sanitizer-races",
            ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9", str(folder / "kernels"), cuda], 180,
            ("compute-sanitizer", "kernels"),
        ),
        *arrays(found),
        Step("training", training, 240, (*with_mpi, "torch", "demo")),
        *suite(folder, quick),
    ]  # fmt: skip


def arrays(found: Found) -> list[Step]:
    """Return the steps with whole jobs: every operation and type, 1, 2 and 4 ranks."""
    program = [sys.executable, "benchmarks/gpu/arrays.py"]
    return [
        Step(
            f"arrays-{library}-{ranks}", [*program, "--ranks", str(ranks), "--library", library], 300,
            (library, "build-hpccoll", "mpi"),
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


# ---- running them --------------------------------------------------------------------------------------


class Record:
    """The file gpu.json, and the results in the logs of steps."""

    def __init__(self, folder: Path, copy: Path | None) -> None:
        self.folder, self.copy, self.file = folder, copy, folder / "gpu.json"
        self.all: dict[str, Any] = {"steps": {}}
        if self.file.exists():
            self.all = json.loads(self.file.read_text())

    def status(self, name: str) -> str:
        return str(self.all["steps"].get(name, {}).get("status", ""))

    def note(self, name: str, **facts: Any) -> None:
        """Write a step's facts; the file is replaced as a whole."""
        self.all["steps"][name] = facts
        self.save()

    def save(self) -> None:
        self.all["figures"] = figures(self.all["steps"])
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.all, indent=1) + "\n")
        fresh.replace(self.file)
        if not self.copy:
            return
        self.copy.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.file, self.copy / "gpu.json")
        with tarfile.open(self.copy / "logs.tar.gz", "w:gz") as packed:
            for log in sorted(self.folder.glob("*.log")):
                packed.add(log, log.name)


def results(log: Path) -> list[dict[str, Any]]:
    """Return the lines of JSON that a program printed."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def run(step: Step, record: Record, seconds: float) -> None:
    """Run one step for at most `seconds`; print and record its outcome."""
    print(f"{step.name:28} ", end="", flush=True)
    log, began, limit = record.folder / f"{step.name}.log", time.monotonic(), min(step.limit, seconds)
    with log.open("w") as out:
        process = subprocess.Popen(
            step.command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, env=environment(step),
        )  # fmt: skip
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = 124
    cut = status == 124 and limit < step.limit
    word = "passed" if status == 0 else "cut off" if cut else f"FAILED ({status})"
    took = round(time.monotonic() - began, 1)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] if status else []
    print(f"{word:12} {took:6} s  {''.join(last)[:150]}", flush=True)
    record.note(
        step.name, status=word, seconds=took, command=command(step), results=results(log),
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def environment(step: Step) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": ":".join(paths), "PYTHONUNBUFFERED": "1", **step.env}


def command(step: Step) -> str:
    """Return the command as a user would type it in the project's folder."""
    words = [*(f"{name}={value}" for name, value in step.env.items()), *step.command]
    return " ".join(word.replace(f"{ROOT}/", "") for word in words)


def lacking(step: Step, missing: dict[str, str], record: Record) -> list[str]:
    """Return why a step cannot run: missing things, and steps that have not passed."""
    steps = [n for n in step.needs if n not in missing and n in record.all["steps"]]
    broken = [f"{n} {record.status(n)}" for n in steps if record.status(n) not in BUILT]
    return [f"no {n}" for n in step.needs if missing.get(n)] + broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    parser.add_argument("--seconds", type=float, default=1e9, help="all steps together")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="steps that begin like this")
    parser.add_argument("--again", action="store_true", help="also steps that have passed")
    parser.add_argument("--copy", type=Path, help="another folder for gpu.json and the packed logs")
    parser.add_argument("--quick", action="store_true", help="few cases, small sizes: does everything run?")
    options = parser.parse_args()
    began, folder = time.monotonic(), options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found, record = Found(), Record(folder, options.copy)
    steps = programs(folder) + questions(folder, found, options.quick)
    missing = {name: why for name, why in found.things.items() if why}
    found.tell(missing, {step.name: [n for n in step.needs if n in missing] for step in steps})
    if options.check:
        return bool(missing)
    record.all["machine"] = found.machine | {"python": platform.python_version()}
    record.all["missing"] = missing
    for step in steps:
        wanted = not options.only or any(step.name.startswith(name) for name in (*options.only, "build"))
        if step.name == "build-hpccoll" and found.hpccoll:
            record.note(step.name, status="there")
            continue
        if not wanted or (record.status(step.name) == "passed" and not options.again):
            continue
        left = options.seconds - (time.monotonic() - began)
        if why := lacking(step, missing, record):
            print(f"{step.name:28} not run: {', '.join(why)}", flush=True)
            record.note(step.name, status="not run", why=why)
        elif left < LEAST:
            print(f"{step.name:28} not begun: the time is over", flush=True)
        else:
            run(step, record, left)
    return summary(record, steps)


def summary(record: Record, steps: list[Step]) -> int:
    """Print the figures and the remaining steps; return 1 if a step failed."""
    record.save()
    print()
    for figure in record.all["figures"]:
        print(f"{figure['value']:>10.3g}  {figure['to reach']:12} {figure['what']}")
    count = {
        word: [s.name for s in steps if record.status(s.name).startswith(word)]
        for word in ("passed", "FAILED", "cut off", "not run")
    }
    print(f"\n{'; '.join(f'{len(names)} {word}' for word, names in count.items())}; all in {record.folder}")
    print("failed: " + " ".join(count["FAILED"]) if count["FAILED"] else "none failed")
    return bool(count["FAILED"])


if __name__ == "__main__":
    sys.exit(main())
