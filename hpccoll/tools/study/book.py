# SPDX-License-Identifier: Apache-2.0
"""The record of the jobs of a study, which one process at a time writes.

A job is recorded before it starts. So a study that was killed at any moment knows its possible jobs when it runs again;
for a job without a number it asks the scheduler by the job's name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hpccoll import durable

__all__ = ["Book", "Job", "alone", "held"]


@dataclass
class Job:
    """A job that was submitted, or one that runs here."""

    scaling: str
    nodes: int
    runs: list[str]
    """The stems of its runs."""
    number: str = ""
    """The job's number at the scheduler; "": it was not submitted yet."""
    state: str = ""
    """`waiting`, `running`, `ended`."""
    began: float = 0.0
    ended: float = 0.0
    minutes: int = 0
    name: str = ""
    """The job's unique name at the scheduler."""
    asked: list[list[str]] = field(default_factory=list)
    """What each of its runs measures, see launches.asked."""

    @property
    def node_hours(self) -> float:
        """Return the cost of an ended job, or the largest possible cost of another one."""
        if self.state != "ended":
            return self.nodes * self.minutes / 60
        return self.nodes * (self.ended - self.began) / 3600 if self.began else 0.0


@dataclass
class Book:
    """The record of the jobs of a study, in the file jobs.json."""

    folder: Path
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Book:
        """Read the record of a folder; it is empty if the study has not run yet."""
        file = folder / "jobs.json"
        return cls(folder, [Job(**job) for job in json.loads(file.read_text())] if file.exists() else [])

    def save(self) -> None:
        """Write the record; the file is replaced in one step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        durable.write_text(self.folder / "jobs.json", json.dumps([asdict(job) for job in self.jobs], indent=1))

    def active(self) -> list[Job]:
        """Jobs that have not ended."""
        return [job for job in self.jobs if job.state != "ended"]

    def spent(self) -> float:
        """Node hours of all jobs; for running jobs the maximum that they can take."""
        return sum(job.node_hours for job in self.jobs)


_locks: dict[Path, int] = {}
"""The descriptors of the locks that this process holds, by the folder of the study."""


@contextlib.contextmanager
def alone(folder: Path, say: Callable[[str], None] | None) -> Iterator[bool]:
    """Lock a study against other processes: another `hpccoll study run`, or processes of one that was killed.

    The processes of the study inherit the lock (`held`), so that a run or a submission that outlives it is not
    repeated.

    :param say: takes a line when this has to wait; None: it does not wait, and makes no folder
    :returns: whether this process has the lock; with `say` always True
    :raises OSError: with `say`, the folder cannot be written
    """
    try:
        if say:
            folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        if say:
            raise
        yield False
        return
    try:
        free = _locked(fd, folder, say)
        _locks[folder] = fd
        yield free
    finally:
        _locks.pop(folder, None)
        os.close(fd)


def _locked(fd: int, folder: Path, say: Callable[[str], None] | None) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if say is None:
            return False
        say(f"waiting: another `hpccoll study run`, or a run that a killed one has started, works in {folder}")
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if say:
            say(f"{folder}: its file system has no locks ({error.strerror}): run this study once at a time")
    return True


def held(folder: Path) -> tuple[int, ...]:
    """The descriptor of the lock, for `pass_fds` of a process that may outlive this one."""
    return (_locks[folder],) if folder in _locks else ()
