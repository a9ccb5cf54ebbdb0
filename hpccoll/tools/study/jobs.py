# SPDX-License-Identifier: Apache-2.0
"""The jobs of a study: one per scaling and number of nodes, on this machine or through a scheduler.

What a study has done is what lies in its folder: runs/*.h5 (a file is there only if its run succeeded), logs/, and
jobs.json, which names the jobs that were submitted. To run a study again submits what is missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path

from hpccoll import config
from hpccoll.tools.lint import check
from hpccoll.tools.study import launches, plan
from hpccoll.tools.study.plan import Run, Study, StudyError
from hpccoll.tools.submit import cli as submit
from hpccoll.tools.submit import script, site

LOCAL = "local"
STATE = {"slurm": ("squeue", "--noheader", "--format=%T", "--jobs"), "lsf": ("bjobs", "-noheader", "-o", "stat")}
OVER = {
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
    "DONE",
    "EXIT",
}
WAITING = {"PENDING", "CONFIGURING", "PEND", "REQUEUED"}
GRACE = 5.0
"""Seconds after the end of a job in which a shared file system may still bring its files."""
OUTPUT = {"slurm": ("--output={}/%x-%j.out",), "lsf": ("-o", "{}/%J.out")}


@dataclass
class Job:
    """A job that was submitted, or one that runs here."""

    scaling: str
    nodes: int
    runs: list[str]
    """The stems of its runs."""
    number: str = ""
    state: str = ""
    """`waiting`, `running`, `ended`."""
    began: float = 0.0
    ended: float = 0.0
    minutes: int = 0

    @property
    def node_hours(self) -> float:
        """What it has cost, or can still cost at most."""
        if self.state != "ended":
            return self.nodes * self.minutes / 60
        return self.nodes * (self.ended - self.began) / 3600 if self.began else 0.0


@dataclass
class Book:
    """What is known of the jobs of a study; kept in jobs.json."""

    folder: Path
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path) -> Book:
        """Read it; empty where the study has not been run."""
        file = folder / "jobs.json"
        return cls(folder, [Job(**job) for job in json.loads(file.read_text())] if file.exists() else [])

    def save(self) -> None:
        """Write it in one step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / ".jobs.json"
        new.write_text(json.dumps([asdict(job) for job in self.jobs], indent=1))
        new.replace(self.folder / "jobs.json")

    def active(self) -> list[Job]:
        """Jobs that have not ended."""
        return [job for job in self.jobs if job.state != "ended"]

    def spent(self) -> float:
        """Node hours of all jobs, of those that still run the most that they can take."""
        return sum(job.node_hours for job in self.jobs)


def missing(study: Study, folder: Path) -> list[Run]:
    """The runs without a result."""
    return [run for run in plan.runs(study) if not launches.result(folder, run).exists()]


def batches(study: Study, book: Book) -> Iterator[tuple[tuple[str, int], list[Run]]]:
    """What has to be submitted: for each point the runs that are missing and in no job that is still there."""
    there = {stem for job in book.active() for stem in job.runs}
    todo = [run for run in missing(study, book.folder) if run.stem not in there]
    for point, several in groupby(todo, key=lambda run: run.point):
        yield point, list(several)


Say = Callable[[str], None]


def run_local(study: Study, folder: Path, say: Say) -> list[str]:
    """Run what is missing on this machine, one after the other.

    :returns: the stems of runs that failed, and of those that the budget left out
    """
    failed, book = [], Book.open(folder)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    for run in missing(study, folder):
        job = Job(run.scaling, run.nodes, [run.stem], "", "running", time.time(), 0.0, study.minutes)
        if study.node_hours and book.spent() + job.node_hours > study.node_hours:
            say(f"left out: {run.stem}: the budget of {study.node_hours:g} node hours")
            failed.append(run.stem)
            continue
        status = _run_here(study, run, folder)
        job.state, job.ended = "ended", time.time()
        book.jobs.append(job)
        book.save()
        done = launches.result(folder, run).exists()
        if not done:
            failed.append(run.stem)
        say(f"{run.stem}: " + ("done" if done else f"failed with status {status}, see {_log(folder, run.stem)}"))
    return failed


def _log(folder: Path, stem: str) -> Path:
    return folder / "logs" / f"{stem}.log"


def _run_here(study: Study, run: Run, folder: Path) -> int:
    """One launch by `hpccoll run`."""
    command = [sys.executable, "-P", "-m", "hpccoll", "run", "-np", str(study.ranks(run.nodes))]
    command += ["--nodes", str(run.nodes), "--timeout", str(60 * study.minutes), "--"]
    command += launches.command(study, run, folder, sys.executable)
    with _log(folder, run.stem).open("w") as log:
        return subprocess.run(
            command,
            cwd=folder.parent,
            env=dict(config.environment()),
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


# ---- through a scheduler -------------------------------------------------------------------------------


def scripts(study: Study, folder: Path, made_by: str) -> Iterator[tuple[Job, str]]:
    """Render a job script for each point that misses runs.

    :raises HpccollError: the site cannot run it
    """
    where, book = site.load(study.site), Book.open(folder)
    for (scaling, nodes), several in batches(study, book):
        commands = [launches.command(study, run, folder) for run in several]
        request = script.Request(
            command=commands[0], more=tuple(commands[1:]), nodes=nodes, minutes=study.minutes,
            name=f"{study.name}-{scaling}-{nodes}", tasks_per_node=study.ranks_per_node, gpus=study.gpus,
            account=study.account, launcher=study.launcher, path=submit.own_programs(), made_by=made_by,
        )  # fmt: skip
        text = script.render(where, request)
        errors = [str(found) for found in check(text) if found.severity == "error"]
        if errors:
            raise StudyError(f"the script for {nodes} nodes: {errors[0]}")
        yield Job(scaling, nodes, [run.stem for run in several], "", "waiting", minutes=study.minutes), text


def submit_missing(study: Study, folder: Path, made_by: str, say: Say) -> None:
    """Submit a job for each point that misses runs, as far as the budget goes.

    :raises HpccollError: the scheduler refuses a job
    """
    book, scheduler = Book.open(folder), site.load(study.site).scheduler
    for name in ("runs", "logs", "scripts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for job, text in scripts(study, folder, made_by):
        if study.node_hours and book.spent() + job.node_hours > study.node_hours:
            say(
                f"left out: {job.scaling} scaling on {job.nodes} nodes could take {job.node_hours:.3g} node hours, and "
                f"{max(0.0, study.node_hours - book.spent()):.3g} of {study.node_hours:g} are left"
            )
            continue
        (folder / "scripts" / f"{job.scaling}-{job.nodes}.sh").write_text(text)
        options = [word.format(folder / "logs") for word in OUTPUT[scheduler]]
        job = replace(job, number=_submitted([submit.COMMANDS[scheduler], *options], text, folder.parent))
        book.jobs.append(job)
        book.save()
        say(f"job {job.number}: {job.scaling} scaling on {job.nodes} nodes, {len(job.runs)} runs")


def _submitted(command: list[str], text: str, folder: Path) -> str:
    """Hand a script to the scheduler; the number of the job."""
    try:
        done = subprocess.run(
            command, input=text, cwd=folder, env=dict(config.environment()), capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise StudyError(f'no {command[0]} on PATH: log in to the cluster, or site = "local"') from None
    numbers = re.findall(r"\d+", done.stdout)
    if done.returncode or not numbers:
        raise StudyError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")
    number: str = numbers[0]
    return number


def look(study: Study, book: Book) -> None:
    """Ask the scheduler how the jobs are."""
    if study.site == LOCAL:
        return
    scheduler = site.load(study.site).scheduler
    for job in book.active():
        before, job.state = job.state, _state(scheduler, job.number)
        if job.state == "running" and before != "running":
            job.began = time.time()
        if job.state == "ended":
            job.ended = time.time()
    book.save()


def _state(scheduler: str, number: str) -> str:
    """`waiting`, `running` or `ended`; a job that the scheduler has forgotten has ended."""
    command = [*STATE[scheduler], number]
    try:
        done = subprocess.run(
            command, env=dict(config.environment()), capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        raise StudyError(f"no {command[0]} on PATH: log in to the cluster") from None
    except subprocess.TimeoutExpired:
        return "waiting"
    words = done.stdout.split()
    if done.returncode and not re.search(r"invalid job id|not found", done.stderr, re.IGNORECASE):
        return "waiting"  # the scheduler does not answer now
    if not words or all(word in OVER for word in words):
        return "ended"
    return "waiting" if all(word in WAITING for word in words) else "running"


def follow(study: Study, folder: Path, seconds: float, say: Say) -> None:
    """Wait until all jobs have ended, and say what changes."""
    before = ""
    while True:
        book = Book.open(folder)
        look(study, book)
        text = progress(study, book)
        if text != before:
            say(text)
        before = text
        if not book.active():
            break
        time.sleep(seconds)
    limit = time.monotonic() + GRACE
    while missing(study, folder) and time.monotonic() < limit:
        time.sleep(0.2)


def progress(study: Study, book: Book) -> str:
    """One line: how many runs are done, and how the jobs are."""
    total, left = len(list(plan.runs(study))), len(missing(study, book.folder))
    states = [job.state for job in book.active()]
    there = [f"{states.count(state)} {state}" for state in ("running", "waiting") if state in states]
    return f"{total - left} of {total} runs done; jobs: {', '.join(there) or 'none'}"
