# SPDX-License-Identifier: Apache-2.0
"""Runs all tests and measurements for a machine with a GPU; those come first whose failures explain most.

    python benchmarks/gpu/run.py --check           prints what is here and what is missing, and runs nothing
    python benchmarks/gpu/run.py                   runs all steps that can run, except those that have passed
    python benchmarks/gpu/run.py --seconds 560     ends in time; the next call runs the remaining steps
    python benchmarks/gpu/run.py --only suite arrays --again

The folder (default: build/gpu) gets a log per step, and gpu.json, which is written again after every step: the machine,
each step's command, time and results, and the figures computed from them. --copy copies gpu.json and the packed logs to
another place after every step, so that no result is lost with the machine. Steps that only check run several at once;
others run alone. HPCCOLL_CUDA_LIBRARY and
HPCCOLL_NCCL_LIBRARY may name other libraries (the tests' fakes); --quick has few cases and small sizes. The program
changes nothing outside of its folders.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from figures import figures  # noqa: E402
from found import Found  # noqa: E402
from steps import Step, programs, questions  # noqa: E402

LEAST = 15
"""Remaining seconds below which no step begins."""
BUILT = {"passed", "there"}


# ---- running them --------------------------------------------------------------------------------------


class Record:
    """The file gpu.json, and the results in the logs of steps."""

    def __init__(self, folder: Path, copy: Path | None) -> None:
        self.folder, self.copy, self.file, self.lock = folder, copy, folder / "gpu.json", threading.Lock()
        self.all: dict[str, Any] = {"steps": {}}
        if self.file.exists():
            self.all = json.loads(self.file.read_text())

    def status(self, name: str) -> str:
        return str(self.all["steps"].get(name, {}).get("status", ""))

    def note(self, name: str, **facts: Any) -> None:
        """Write a step's facts; the file is replaced as a whole."""
        with self.lock:
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


def tell(line: str) -> None:
    """Print a line in one piece, whatever other threads print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(step: Step, record: Record, seconds: float) -> None:
    """Run one step for at most `seconds`; print and record its outcome."""
    log, began, limit = record.folder / f"{step.name}.log", time.monotonic(), min(step.limit, seconds)
    with log.open("w") as out:
        process = subprocess.Popen(
            step.command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, env=environment(step),
        )  # fmt: skip
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            end(process)
            status = 124
    cut = status == 124 and limit < step.limit
    word = "passed" if status == 0 else "cut off" if cut else f"FAILED ({status})"
    took = round(time.monotonic() - began, 1)
    last = log.read_text(errors="replace").strip().splitlines()[-1:] if status else []
    tell(f"{step.name:28} {word:12} {took:6} s  {''.join(last)[:150]}")
    record.note(
        step.name, status=word, seconds=took, command=command(step), results=results(log),
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """End a step that takes too long; SIGABRT makes each Python write where its threads are."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        time.sleep(1)
    process.wait()


def run_if_possible(step: Step, missing: dict[str, str], record: Record, end: float) -> None:
    """Run a step if all that it needs is there and time is left; otherwise say why not."""
    left = end - time.monotonic()
    if why := lacking(step, missing, record):
        tell(f"{step.name:28} not run: {', '.join(why)}")
        record.note(step.name, status="not run", why=why)
    elif left < LEAST:
        tell(f"{step.name:28} not begun: the time is over")
    else:
        run(step, record, left)


def run_all(steps: list[Step], jobs: int, run_one: Callable[[Step], None]) -> None:
    """Run the steps, `jobs` at once; each after those that it needs."""
    for alone, group in itertools.groupby(steps, lambda step: step.alone):
        begun: dict[str, Future[None]] = {}

        def run_in_turn(step: Step, begun: dict[str, Future[None]] = begun) -> None:
            wait([begun[name] for name in step.needs if name in begun])
            run_one(step)

        with ThreadPoolExecutor(1 if alone else jobs) as threads:
            for step in group:
                begun[step.name] = threads.submit(run_in_turn, step)
        for ended in begun.values():
            ended.result()


def environment(step: Step) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": ":".join(paths), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **step.env}


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
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3), help="checks at once")
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
    chosen = [step for step in steps if is_due(step, record, options)]
    for step in chosen:
        if step.name == "build-hpccoll" and found.hpccoll:
            record.note(step.name, status="there")
    due = [step for step in chosen if record.status(step.name) != "there"]
    run_all(due, options.jobs, lambda step: run_if_possible(step, missing, record, began + options.seconds))
    return summary(record, steps)


def is_due(step: Step, record: Record, options: argparse.Namespace) -> bool:
    wanted = not options.only or any(step.name.startswith(name) for name in (*options.only, "build"))
    return wanted and (record.status(step.name) != "passed" or options.again)


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
