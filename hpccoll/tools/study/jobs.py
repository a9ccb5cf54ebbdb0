# SPDX-License-Identifier: Apache-2.0
"""The jobs of a study: one per scaling and number of nodes, on this machine or through a scheduler.

The folder of a study has its results: runs/*.h5 (a file exists only if its run succeeded), logs/, and jobs.json
(book.py), which records each job before it starts. Running a study again, also after it was killed, submits only the
missing runs.
"""

import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from hpccoll import durable, inherited
from hpccoll.tools.lint import check
from hpccoll.tools.study import launches, plan
from hpccoll.tools.study.book import Book, Job, held
from hpccoll.tools.study.plan import Run, Study, StudyError
from hpccoll.tools.submit import cli as submit
from hpccoll.tools.submit import script, site

LOCAL = "local"
STATE = {"slurm": ("squeue", "--noheader", "--format=%T", "--jobs"), "lsf": ("bjobs", "-noheader", "-o", "stat")}
NUMBER = {
    "slurm": ("squeue", "--noheader", "--format=%A", "--states=all", "--name={name}"),
    "lsf": ("bjobs", "-noheader", "-a", "-o", "jobid", "-J", "{name}"),
}
"""How a scheduler is asked for the number of a job of a name."""
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
NO_STEPS = "ended with status 0 and has reported no steps (hpccoll.study.finish, or `log`)"
OUTPUT = {"slurm": ("--output={}/%x-%j.out",), "lsf": ("-o", "{}/%J.out")}


def missing(study: Study, folder: Path) -> list[Run]:
    """The runs without a result."""
    return [run for run in plan.runs(study) if not launches.result(folder, run).exists()]


def batches(study: Study, book: Book) -> Iterator[tuple[tuple[str, int], list[Run]]]:
    """Yield the runs to submit: for each point the runs without a result that are in no active job."""
    there = {stem for job in book.active() for stem in job.runs}
    todo = [run for run in missing(study, book.folder) if run.stem not in there]
    for point, several in groupby(todo, key=lambda run: run.point):
        yield point, list(several)


Say = Callable[[str], None]


def run_local(study: Study, folder: Path, say: Say) -> list[str]:
    """Run the missing runs on this machine, one after the other.

    :returns: the stems of the failed runs, and of those beyond the budget
    """
    failed, book = [], Book.open(folder)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    for job in book.active():  # the study was killed, and none of its processes runs any more: book.alone
        job.ended, job.state = max(job.began, _last_sign(folder, job)), "ended"
        book.save()
    for run in missing(study, folder):
        job = Job(run.scaling, run.nodes, [run.stem], "", "running", time.time(), 0.0, study.minutes)
        job.asked = [launches.asked(study, run)]
        if study.node_hours and book.spent() + job.node_hours > study.node_hours:
            say(f"left out: {run.stem}: the budget of {study.node_hours:g} node hours")
            failed.append(run.stem)
            continue
        book.jobs.append(job)
        book.save()
        status = _run_here(study, run, folder)
        job.state, job.ended = "ended", time.time()
        book.save()
        done = launches.result(folder, run).exists()
        if not done:
            failed.append(run.stem)
        how = f"failed with status {status}" if status else NO_STEPS
        say(f"{run.stem}: " + ("done" if done else f"{how}, see {_log(folder, run.stem)}"))
    return failed


def _last_sign(folder: Path, job: Job) -> float:
    """Return when a job last wrote into its log."""
    log = _log(folder, job.runs[0])
    return log.stat().st_mtime if log.exists() else 0.0


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
            env=dict(inherited.environment()),
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=held(folder),
            check=False,
        ).returncode


# ---- through a scheduler -------------------------------------------------------------------------------


def scripts(study: Study, folder: Path, made_by: str) -> Iterator[tuple[Job, str]]:
    """Render a job script for each point with missing runs.

    :raises HpccollError: the site cannot run it
    """
    where, book = site.load(study.site), Book.open(folder)
    for (scaling, nodes), several in batches(study, book):
        name = f"{study.name}-{scaling}-{nodes}-{secrets.token_hex(3)}"
        commands = [launches.command(study, run, folder) for run in several]
        request = script.Request(
            command=commands[0], more=tuple(commands[1:]), nodes=nodes, minutes=study.minutes,
            name=name, tasks_per_node=study.ranks_per_node, gpus=study.gpus,
            account=study.account, launcher=study.launcher, path=submit.own_programs(), made_by=made_by,
        )  # fmt: skip
        text = script.render(where, request)
        errors = [str(found) for found in check(text) if found.severity == "error"]
        if errors:
            raise StudyError(f"the script for {nodes} nodes: {errors[0]}")
        job = Job(scaling, nodes, [run.stem for run in several], "", "waiting", minutes=study.minutes, name=name)
        job.asked = [launches.asked(study, run) for run in several]
        yield job, text


def submit_missing(study: Study, folder: Path, made_by: str, say: Say) -> None:
    """Submit a job for each point with missing runs, within the budget.

    :raises HpccollError: the scheduler refuses a job
    """
    book, where = Book.open(folder), site.load(study.site)
    for name in ("runs", "logs", "scripts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    look(study, book)
    book.save()
    for job, text in scripts(study, folder, made_by):
        if study.node_hours and book.spent() + job.node_hours > study.node_hours:
            say(
                f"left out: {job.scaling} scaling on {job.nodes} nodes could take {job.node_hours:.3g} node hours, and "
                f"{max(0.0, study.node_hours - book.spent()):.3g} of {study.node_hours:g} are left"
            )
            continue
        durable.write_text(folder / "scripts" / f"{job.scaling}-{job.nodes}.sh", text)
        options = [word.format(folder / "logs") for word in OUTPUT[where.scheduler]]
        book.jobs.append(job)
        book.save()  # before the submission: if the study is killed now, it later asks for the job's name
        try:
            job.number = _submitted(where, [submit.COMMANDS[where.scheduler], *options], text, folder)
        except StudyError:
            book.jobs.remove(job)
            raise
        finally:
            book.save()
        say(f"job {job.number}: {job.scaling} scaling on {job.nodes} nodes, {len(job.runs)} runs")


def _submitted(where: site.Site, command: list[str], text: str, folder: Path) -> str:
    """Submit a script to the scheduler; return the number of the job."""
    try:
        done = submit.hand_over(
            where, command, text,
            cwd=folder.parent, env=dict(inherited.environment()), pass_fds=held(folder), capture_output=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise StudyError(f'no {command[0]} on PATH: log in to the cluster, or site = "local"') from None
    numbers = re.findall(r"\d+", done.stdout)
    if done.returncode or not numbers:
        raise StudyError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")
    number: str = numbers[0]
    return number


def look(study: Study, book: Book) -> None:
    """Ask the scheduler for the states of the jobs."""
    if study.site == LOCAL:
        return
    scheduler = site.load(study.site).scheduler
    for job in book.active():
        before, job.state = job.state, _state(scheduler, job)
        if job.state == "running" and before != "running":
            job.began = time.time()
        if job.state == "ended":
            job.ended = time.time()


def _state(scheduler: str, job: Job) -> str:
    """`waiting`, `running` or `ended`; a job that the scheduler does not know has ended."""
    if not job.number:  # the study was killed while it submitted it
        found = _asked([word.format(name=job.name) for word in NUMBER[scheduler]])
        if found is None:
            return "waiting"
        if not found:
            return "ended"
        job.number = found[0]
    words = _asked([*STATE[scheduler], job.number])
    if words is None:
        return "waiting"
    if all(word in OVER for word in words):
        return "ended"
    return "waiting" if all(word in WAITING for word in words) else "running"


def _asked(command: list[str]) -> list[str] | None:
    """Return the words of the scheduler's answer; none: it knows no such job; None: it does not answer now."""
    try:
        done = subprocess.run(
            command,
            env=dict(inherited.environment()),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=60,
        )
    except FileNotFoundError:
        raise StudyError(f"no {command[0]} on PATH: log in to the cluster") from None
    except subprocess.TimeoutExpired:
        return None
    if done.returncode and not re.search(r"invalid job id|not found", done.stderr, re.IGNORECASE):
        return None
    return done.stdout.split()


def follow(study: Study, folder: Path, seconds: float, say: Say) -> None:
    """Wait until all jobs have ended, and print changes."""
    before = ""
    while True:
        book = Book.open(folder)
        look(study, book)
        book.save()
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
    """Return a line: the number of finished runs, and the states of the jobs."""
    total, left = len(list(plan.runs(study))), len(missing(study, book.folder))
    states = [job.state for job in book.active()]
    there = [f"{states.count(state)} {state}" for state in ("running", "waiting") if state in states]
    return f"{total - left} of {total} runs done; jobs: {', '.join(there) or 'none'}"
