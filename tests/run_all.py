# SPDX-License-Identifier: Apache-2.0
"""Runs all tests: those without a launcher, and the parallel ones under the real one at 1 to 4 ranks.

A single rank runs beside the tests without a launcher, which often wait; its output is printed when it has ended. Each
other run prints pytest's report, and the name of a test when it fails. The last lines compare, for each part, the
collected tests with those that ran, and name the tests that failed and those that did not run. If a test ends its
process, the part continues without that test, which counts as failed. A run that is ended from outside prints the same
lines before it ends.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TextIO

import run_records

LAUNCH_LIMIT = 3600
"""Seconds for the tests under a launcher; each test has its own limit. This one ends a launcher that hangs."""
WORKERS = ("-n", "4", "--dist", "loadscope", "--no-loadscope-reorder", "--durations=20")
"""Workers for the tests without a launcher. These start jobs and wait for them half of the time; one worker mostly
waits, for Slurm and for hosts (scope_of in conftest.py)."""
IDLE = 120.0
"""Seconds without a test in any process after which a run counts as stuck: xdist can lose tests of a dead worker."""
LAYOUTS = ((1, 1), (3, 2))
"""Ranks and nodes: a single rank, and uneven nodes, one of them with several ranks."""
SLOW_LAYOUTS = ((2, 1), (4, 2))
"""One node, and even nodes: threads (tests/api) and other jobs have them in `make test`."""
NOT_ALONE = ("--ignore=tests/jax", "--ignore=tests/keras")
"""Left out of the single rank's run, because one rank compiles as much as three; `make test-all` runs them. The tests
of the other front ends stay in it."""
ALONE, SINGLE = "no launcher", "1 ranks, 1 nodes"
"""The parts that run side by side."""


def commands(extra: list[str], parallel_only: bool, slow: bool) -> dict[str, list[str]]:
    """Return the commands to execute, by name. Ranks share this machine as one node, as two, and as uneven ones.

    -P: the tests use the installed package, not files of the current folder.
    """
    pytest = ["-P", "-m", "pytest", "--color=no", *extra]
    launch = [sys.executable, "-P", "-m", "hpccoll", "run", "--timeout", str(LAUNCH_LIMIT)]
    all_of_them = slow or parallel_only
    parallel = {
        f"{ranks} ranks, {nodes} nodes": [
            *launch, "-np", str(ranks), "--nodes", str(nodes), "python", *pytest, "-pno:cacheprovider", "--only-mpi",
            *(() if all_of_them or ranks > 1 else NOT_ALONE),
        ]
        for ranks, nodes in (*LAYOUTS, *(SLOW_LAYOUTS if all_of_them else ()))
    }  # fmt: skip
    return parallel if parallel_only else {ALONE: [sys.executable, *pytest, *WORKERS], **parallel}


@dataclass
class Part:
    """One of the commands, and the folders with the records of its runs."""

    name: str
    command: list[str]
    folder: Path
    runs: list[Path] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    seconds: float = 0.0
    output: TextIO | None = None
    """The file for the output of its runs, if it is not standard output."""
    process: subprocess.Popen[bytes] | None = None
    ended: bool = False

    def record(self) -> run_records.Record:
        return run_records.read(self.runs)

    def run(self) -> None:
        """Repeat runs until all tests have run, as long as each run completes more tests."""
        began = time.monotonic()
        try:
            for number in count(1):
                left = self.record().not_run
                print(
                    f"\n##### {self.name}" + (f", run {number}: {len(left)} tests are left" if left else ""),
                    flush=True, file=self.output,
                )  # fmt: skip
                self.run_once(self.folder / f"{number:04}")
                if self.ended or not self.record().not_run or self.record().not_run == left:
                    return
        finally:
            self.seconds = time.monotonic() - began

    def run_once(self, records: Path) -> None:
        self.runs.append(records)
        environment = {**os.environ, run_records.FOLDER: str(records)}
        with subprocess.Popen(
            self.command, env=environment, process_group=0, stdout=self.output, stderr=self.output and subprocess.STDOUT
        ) as self.process:
            try:
                self.statuses.append(self.wait(self.process, records))
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """End the current run, and start no other one; any thread may call it."""
        self.ended = True
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self, process: subprocess.Popen[bytes], records: Path) -> int:
        """Return the exit status of a run; end a run that is stuck."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(IDLE / 10)
            if run_records.idle(records) > IDLE:
                print(f"\n{self.name}: no test has run for {IDLE:.0f} s, this run is ended", flush=True)
                os.killpg(process.pid, signal.SIGKILL)

    def succeeded(self) -> bool:
        record = self.record()
        good = self.statuses == [0] and record.collected and not record.failed()
        return bool(good) and record.begun == record.collected

    def summary(self) -> str:
        counts, collected = self.record().counts(), len(self.record().collected)
        ways = ", ".join(f"{counts[way]} {way}" for way in ("failed", "passed", "skipped", "not run") if counts[way])
        ends = "" if self.statuses == [0] else f"; exit status {', '.join(map(str, self.statuses)) or 'none: ended'}"
        return f"{self.name:>20}: {collected} collected: {ways or 'none ran'} in {self.seconds:.0f} s{ends}"


@contextlib.contextmanager
def beside(part: Part) -> Iterator[None]:
    """Run a part in the background, and print its output at the end; end it if the rest is ended."""
    with tempfile.TemporaryFile("w+") as part.output, ThreadPoolExecutor(1) as other:
        done = other.submit(part.run)
        try:
            yield
            done.result()
        except BaseException:
            part.end()
            raise
        finally:
            part.output.seek(0)
            print(part.output.read(), flush=True)


def run(parts: list[Part]) -> None:
    """Run all parts, the single rank's beside that without a launcher."""
    (first, *rest), single = parts, next((part for part in parts if part.name == SINGLE), None)
    with beside(single) if single and first.name == ALONE else contextlib.nullcontext():
        first.run()
    for part in rest:
        if not part.runs:
            part.run()


def print_names(what: str, part: Part, tests: list[str]) -> None:
    """Print the names of tests; of many tests print each file and its number of tests."""
    files = Counter(test.split("::")[0] for test in tests)
    names = tests if len(tests) <= 40 else [f"{file} ({number} tests)" for file, number in sorted(files.items())]
    for name in names:
        print(f"{what} {name} [{part.name}]")


def summarize(parts: list[Part], seconds: float) -> int:
    """Print which tests ran and which did not; return the exit status."""
    print("\n##### summary")
    total = Counter[str]()
    for part in parts:
        print(part.summary())
        total += part.record().counts()
    for part in parts:
        print_names("NOT RUN", part, sorted(part.record().not_run))
        print_names("FAILED", part, part.record().failed())
    good = all(part.succeeded() for part in parts)
    words = {"failed": total["failed"] + total["not run"], "passed": total["passed"], "skipped": total["skipped"]}
    counts = ", ".join(f"{number} {word}" for word, number in words.items() if number)
    print(f"===== {counts or 'no tests ran'} in {seconds:.2f}s =====", flush=True)
    return 0 if good else 1


def end(*_: object) -> None:
    """Handle the signal of `timeout` or a batch system: print the results, then end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit("ended by SIGTERM")


def main() -> int:
    """Run everything; return 1 if a test failed or did not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", action="store_true", help="only tests under the launcher")
    parser.add_argument("--slow", action="store_true", help="also tests marked slow")
    arguments, extra = parser.parse_known_args()
    if not arguments.slow and "-m" not in extra:
        extra += ["-m", "not slow"]
    signal.signal(signal.SIGTERM, end)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hpccoll-records-") as folder:
        parts = [
            Part(name, command, Path(folder, name.replace(" ", "-")))
            for name, command in commands(extra, arguments.parallel, arguments.slow).items()
        ]
        try:
            run(parts)
        finally:
            status = summarize(parts, time.monotonic() - began)
    return status


if __name__ == "__main__":
    sys.exit(main())
