# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: it writes the collected, started and finished tests of each process into files, and prints the
name of a test when it fails.

run_all.py reads the files. If a test or a limit has ended a run, they show which tests have not run; a second run of
the same part leaves out the tests that the first one has started.
"""

import io
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FOLDER = "TEST_RECORDS_FOLDER"
"""The environment variable that names the folder of this run of a part; beside it are those of the runs before."""


@dataclass
class Record:
    """The facts about the tests of a part."""

    collected: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)
    """passed, failed or skipped: the worst result of all ranks and stages of a test."""

    def add(self, kind: str, value: str) -> None:
        if kind in ("failed", "skipped", "passed"):
            worst = min((self.outcomes.get(value, "passed"), kind), key=("failed", "skipped", "passed").index)
            self.outcomes[value] = worst
        else:
            getattr(self, kind).add(value)

    @property
    def died(self) -> set[str]:
        """Tests that ended the process that ran them, on one of the ranks."""
        return self.begun - self.finished

    @property
    def not_run(self) -> set[str]:
        return self.collected - self.begun

    def counts(self) -> Counter[str]:
        """The number of tests per outcome; the sum is the number of collected tests."""
        ended = Counter("failed" if test in self.died else self.outcomes.get(test, "failed") for test in self.begun)
        return ended + Counter({"not run": len(self.not_run)})

    def failed(self) -> list[str]:
        """Return the names of the tests that failed or died."""
        return sorted({test for test, outcome in self.outcomes.items() if outcome == "failed"} | self.died)


def read(folders: list[Path]) -> Record:
    """Return the records of the runs of a part, the oldest first.

    A test has finished when it finished in each process that began it. The last line of a killed process may be cut.
    """
    record, died = Record(), set[str]()
    for file in sorted(file for folder in folders for file in folder.glob("*.jsonl")):
        of_process = Record()
        for line in file.read_text().splitlines():
            try:
                kind, value = json.loads(line)
            except ValueError:
                continue
            of_process.add(kind, value)
            record.add(kind, value)
        died |= of_process.died
    record.finished -= died
    return record


def idle(folder: Path) -> float:
    """Return for how many seconds no process of a run has had a test; 0.0 while one has, or none has begun."""
    files = list(folder.glob("*.jsonl"))
    ended = {file: file.read_text().rstrip().rpartition("\n")[2].startswith('["finished"') for file in files}
    busy = [file for file, has_ended in ended.items() if not has_ended and is_alive(int(file.stem))]
    began = any(ended.values())
    return time.time() - max(file.stat().st_mtime for file in files) if began and not busy else 0.0


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Recorder:
    """Writes the record of this process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = os.open(folder / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.before = read(sorted(other for other in folder.parent.iterdir() if other.name < folder.name)).begun

    def write(self, kind: str, value: str) -> None:
        os.write(self.file, f"{json.dumps([kind, value])}\n".encode())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if item.nodeid in self.before]
        items[:] = [item for item in items if item.nodeid not in self.before]
        if done:
            config.hook.pytest_deselected(items=done)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self.write("collected", item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that cannot be read as a failed test."""
        if report.failed:
            for kind in ("collected", "begun", "failed", "finished"):
                self.write(kind, report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write("begun", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.write(report.outcome, report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.write("finished", nodeid)


class FailureNames:
    """Prints the name of a test as soon as it fails."""

    def __init__(self, reporter: pytest.TerminalReporter | None) -> None:
        self.reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        line = f"FAILED {report.nodeid} ({report.when})"
        if self.reporter is None or isinstance(self.reporter._tw._file, io.StringIO):  # another rank than 0
            print(line, file=sys.stderr, flush=True)
        else:
            self.reporter.ensure_newline()
            self.reporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    hands_out = bool(config.getoption("numprocesses", None)) and not is_worker
    if FOLDER in os.environ and not hands_out:
        config.pluginmanager.register(Recorder(Path(os.environ.pop(FOLDER))))  # processes of a test must not have it
    if not is_worker:
        config.pluginmanager.register(FailureNames(config.pluginmanager.get_plugin("terminalreporter")))
