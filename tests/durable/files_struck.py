# SPDX-License-Identifier: Apache-2.0
"""Injects faults into each system call that replaces a file in one process, and continues a killed study or bench.

It runs with blow.c preloaded, as blows.py does, and prints a row as JSON per fault.
"""

import ctypes
import functools
import itertools
import json
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from hpccoll import durable, testing
from hpccoll.elastic.commit_file import CommitFile
from hpccoll.errors import HpccollError
from hpccoll.tools.bench import files, start
from hpccoll.tools.bench import results as bench_results
from hpccoll.tools.study import book, jobs, launches, plan
from hpccoll.tools.trace import recording

NONE, FAIL, BEFORE, AFTER = range(4)
EIO = 5
library = ctypes.CDLL(None)


class Subject:
    """A file that has an old state, and a process that writes a new one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "there"
        """The files into whose writes faults are injected."""
        self.outside = folder / "outside"
        """A file without faults: a list of the work done, as a scheduler or a machine keeps it."""

    def begin(self) -> None:
        """Prepare the process before its fault."""
        self.write(1)

    def write(self, step: int) -> None:
        raise NotImplementedError

    def read(self) -> Any:
        raise NotImplementedError

    def judge(self, old: Any, new: Any) -> str:
        """Return what is wrong with the files; "" if they are correct."""
        found = self.read()
        return "" if found in (old, new) else f"read {found}, which is neither {old} nor {new}"


class Commit(Subject):
    """The commit of an elastic job."""

    def write(self, step: int) -> None:
        CommitFile(self.folder / "commit").write(step, np.full(1000, step))

    def read(self) -> Any:
        found = CommitFile(self.folder / "commit").read()
        return (found[0], found[1].tolist()) if found else None


class Text(Subject):
    """Site files, fits, traces of models, reports, proofs."""

    def write(self, step: int) -> None:
        durable.write_text(self.folder / "site.toml", f"step {step}\n" * 100)

    def read(self) -> Any:
        file = self.folder / "site.toml"
        return file.read_text() if file.exists() else None


class Results(Subject):
    """The file of a bench."""

    def write(self, step: int) -> None:
        files.write(self.folder / "r.h5", of_launch(step))

    def read(self) -> Any:
        file = self.folder / "r.h5"
        return [case.samples.tolist() for case in files.read(file).cases.values()] if file.exists() else None


class Jobs(Subject):
    """The book of a study."""

    def write(self, step: int) -> None:
        book.Book(self.folder, [book.Job("weak", n, ["r"], str(n)) for n in range(step)]).save()

    def read(self) -> Any:
        return [job.nodes for job in book.Book.open(self.folder).jobs]


class Recorded(Subject):
    """The last events of a rank, by ext/loop/trace_file.c."""

    def begin(self) -> None:
        (self.world,) = testing.threads(1, trace_dir=str(self.folder))
        self.write(1)

    def write(self, step: int) -> None:
        self.world.base.loop.write_trace(f"step {step}")

    def read(self) -> Any:
        return [recording.parse(file.read_bytes(), str(file)).ended for file in self.folder.glob("*.hctrace")]


class Resumed(Subject):
    """A program that is run again after the fault: then all work is done, and nothing twice."""

    def begin(self) -> None:
        pass

    def did(self, what: str) -> None:
        with self.outside.open("a") as done:
            done.write(f"{what}\n")

    def all_done(self) -> list[str]:
        return self.outside.read_text().split() if self.outside.exists() else []

    def judge(self, old: Any, new: Any) -> str:
        if in_a_process(lambda: self.write(2)) != 0:
            return "run again, it fails"
        return "" if self.read() == new else f"run again, it has {self.read()} and not {new}"


class LocalStudy(Resumed):
    """A study on this machine; its runs write their results as ranks do."""

    def write(self, step: int) -> None:
        study = plan.load(self.study())
        with mock.patch.object(jobs, "_run_here", self.one), book.alone(self.folder, print):
            jobs.run_local(study, self.folder, lambda line: None)

    def study(self, site: str = "local") -> Path:
        file = self.folder.parent / "s.toml"
        file.write_text(STUDY.format(site=site))
        return file

    def one(self, study: plan.Study, run: plan.Run, folder: Path) -> int:
        self.did(f"begins:{run.stem}")
        files.write(launches.result(folder, run), of_launch(1))
        return 0

    def read(self) -> Any:
        """Check that each run has a result, each started run is in the book, and none with a result started again."""
        runs = [run.stem for run in plan.runs(plan.load(self.study()))]
        begun = self.all_done()
        known = [f"begins:{job.runs[0]}" for job in book.Book.open(self.folder).jobs]
        return (
            [stem for stem in runs if not (self.folder / "runs" / f"{stem}.h5").exists()],
            sorted(set(begun)),
            [one for one in begun if begun.count(one) > known.count(one)],
            max(len(begun) - len(runs), 1),
            {job.state for job in book.Book.open(self.folder).jobs},
        )


class SubmittedStudy(LocalStudy):
    """A study through a scheduler, which keeps the names of its jobs outside."""

    def write(self, step: int) -> None:
        with mock.patch.object(jobs.subprocess, "run", self.scheduler), book.alone(self.folder, print):
            jobs.submit_missing(plan.load(self.study("generic-cpu")), self.folder, "", lambda line: None)

    def scheduler(self, command: list[str], **options: Any) -> Any:
        names, said = self.all_done(), ""
        if command[0] == "sbatch":
            self.did(re.search(r"--job-name=(\S+)", options["input"])[1])
            said = f"Submitted batch job {len(names) + 1}"
        elif named := [word.partition("=")[2] for word in command if word.startswith("--name=")]:
            said = "".join(f"{number}\n" for number, name in enumerate(names, 1) if name == named[0])
        else:
            said = "PENDING"
        return subprocess.CompletedProcess(command, 0, said, "")

    def read(self) -> Any:
        """Return points and numbers of the scheduler's jobs, which must be those of the book."""
        known = [(job.name, job.number) for job in book.Book.open(self.folder).jobs]
        mine = [(name, str(number)) for number, name in enumerate(self.all_done(), 1)]
        return sorted(name.rpartition("-")[0] for name in self.all_done()), [one for one in mine if one not in known]


class LaunchesOfBench(Resumed):
    """`hpccoll bench --launches 3 --out r.h5`."""

    def write(self, step: int) -> None:
        out, launch = self.folder / "r.h5", start.Launch(1, launches=3)
        with mock.patch.object(start, "one", self.one), start.folder_of(out, "asked") as folder:
            files.write(out, start.measured([], launch, [], folder))

    def one(self, words: Any, launch: Any, environment: Any, number: int, file: Path) -> None:
        self.did(f"launch{number}")
        files.write(file, of_launch(number))

    def judge(self, old: Any, new: Any) -> str:
        """Check that only the launch with the fault starts again, unless the command had ended."""
        ended = (self.folder / "r.h5").exists() and not (self.folder / "r.h5.launches" / "request.json").exists()
        wrong = super().judge(old, new)
        return wrong or ("" if ended or len(self.all_done()) <= 4 else f"it began {self.all_done()}")

    def read(self) -> Any:
        """Return the samples, each launch's once, and whether the folder of the launches is gone."""
        (case,) = files.read(self.folder / "r.h5").cases.values()
        return case.samples.tolist(), (self.folder / "r.h5.launches").exists()


STUDY = """
name = "s"
site = "{site}"
nodes = [1, 2]
repetitions = 1
node_hours = 100
[bench]
command = ["training"]
"""


@functools.cache
def of_launch(number: int) -> bench_results.Results:
    facts = {"hpccoll": "0", "ranks": 1, "nodes": 1, "number": number}
    key = bench_results.Key("step", "x", "hpccoll", "", "", "host", "", 1, 1, 0)
    samples, zeros = np.full(6, 1.0 + number), np.zeros(6, np.int32)
    return bench_results.Results([facts], {key: bench_results.Case(key, samples, zeros, zeros + 1, {}, {})})


# ---- blows ----------------------------------------------------------------------------------------------


def in_a_process(call: Callable[[], Any]) -> int:
    """Run a function in another process; return its exit status, below 0 for a signal."""
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            call()
            status = 0
        except SystemExit:
            status = 3
        except (OSError, HpccollError):
            status = 4
        except Exception:  # noqa: BLE001 - it must not reach the code of the parent
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def struck(subject: Subject, at: int, kind: int, number: int) -> tuple[int, int]:
    """Inject a fault into a write; return the exit status, and the number of calls."""
    page = mmap.mmap(-1, mmap.PAGESIZE)

    def write() -> None:
        subject.begin()
        me = ctypes.c_int(os.getpid())
        library.blow_arm(os.fsencode(subject.folder), at, kind, EIO, number, ctypes.byref(me))
        try:
            subject.write(2)
        finally:
            struct.pack_into("i", page, 0, library.blow_count())
            library.blow_arm(b"", 0, NONE, 0, 0, None)

    status = in_a_process(write)
    return status, struct.unpack_from("i", page)[0]


KINDS = ((FAIL, 0), (BEFORE, signal.SIGKILL), (AFTER, signal.SIGKILL), (BEFORE, signal.SIGTERM))


def table(subject: Subject, stride: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every `stride`-th fault."""

    def fresh() -> None:
        shutil.rmtree(subject.folder, ignore_errors=True)
        subject.outside.unlink(missing_ok=True)
        subject.folder.mkdir(parents=True)

    fresh()
    in_a_process(subject.begin)
    old = subject.read() if not isinstance(subject, Resumed) else None
    fresh()
    status, calls = struck(subject, 0, NONE, 0)
    new = subject.read()
    assert status == 0 and calls and old != new, (status, calls, old, new)
    for at, (kind, number) in list(itertools.product(range(1, calls + 1), KINDS))[::stride]:
        fresh()
        status, _ = struck(subject, at, kind, number)
        wrong = "" if status in (0, 3, 4, -signal.SIGKILL) else f"it ends with {status}"
        yield {"row": [at, kind, number], "status": status, "wrong": wrong or subject.judge(old, new)}


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="blows-"))
    for row in table(globals()[sys.argv[1]](folder), int(sys.argv[2])):
        print(json.dumps(row), flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
