# SPDX-License-Identifier: Apache-2.0
"""The command `hpccoll study`: run, status, collect and report on the file of a study."""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from hpccoll.errors import HpccollError
from hpccoll.tools.bench import files
from hpccoll.tools.numbers import above_zero
from hpccoll.tools.study import book, collect, jobs, launches, page, plan, rank
from hpccoll.tools.study.plan import Study


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe `hpccoll study`."""
    parser = commands.add_parser(
        "study", help="run a scaling study: jobs from a TOML file, a page and figures from their results"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    run = _action(actions, "run", run_study, "run what is missing, and follow it until the end")
    run.add_argument("--dry-run", action="store_true", help="print the job scripts, or the commands of local runs")
    run.add_argument("--no-wait", action="store_true", help="submit, and do not follow")
    how_often = "how often the scheduler is asked (10)"
    run.add_argument("--poll", type=above_zero, default=10, metavar="SECONDS", help=how_often)
    run.add_argument("--report", action="store_true", help="collect and report at the end")
    _fonts(run)
    _with(run)
    _action(actions, "status", status, "which runs are done, running, waiting or missing")
    for name, function, what in (
        ("collect", collect_study, "put the results into one HDF5 file"),
        ("report", report, "write the page, the figures for print and the LaTeX tables"),
    ):
        action = _action(actions, name, function, what)
        action.add_argument("--mixed", action="store_true", help="accept results of different versions and revisions")
        _with(action)
        if function is report:
            _fonts(action)
    inside = actions.add_parser("rank", allow_abbrev=False)
    inside.add_argument("--log", required=True)
    inside.add_argument("--name", required=True)
    inside.add_argument("--warmup", type=int, default=plan.What.warmup)
    inside.add_argument("command", nargs=argparse.REMAINDER)
    inside.set_defaults(main=_guarded(as_rank))


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, function: Callable[..., int], what: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=what, description=what)
    parser.add_argument("file", type=Path, metavar="STUDY.toml")
    parser.set_defaults(main=_guarded(function))
    return parser


def _with(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with", dest="others", action="append", type=Path, default=[], metavar="FILE.h5",
        help="results of hpccoll bench that belong into the same file and report; may be repeated",
    )  # fmt: skip


def _fonts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--serif", action="store_true", help="draw the figures in a font with serifs, as papers have")


def _guarded(function: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return a command that prints an error as one line, and ends with status 1."""

    def main(arguments: argparse.Namespace) -> int:
        try:
            return function(arguments)
        except BrokenPipeError:
            raise
        except (HpccollError, OSError) as error:
            print(f"hpccoll study: {error}", file=sys.stderr, flush=True)
            return 1

    return main


def say(text: str) -> None:
    """Print a line about the progress."""
    print(text, flush=True)


def opened(arguments: argparse.Namespace) -> tuple[Study, Path]:
    """Read the file of a study; return the study and its folder."""
    study = plan.load(arguments.file)
    return study, plan.folder_of(arguments.file, study)


def run_study(arguments: argparse.Namespace) -> int:
    """Run the missing runs.

    :returns: the exit status: 0, or 1 if runs are still missing at the end
    """
    study, folder = opened(arguments)
    made_by = shlex.join(["hpccoll", *sys.argv[1:]]).replace("\n", " ")
    files.check_h5py()
    if arguments.report:
        page.check_packages()
    launches.refuse_changed(study, folder)
    if arguments.dry_run:
        return dry_run(study, folder, made_by)
    with book.alone(folder, say):
        if study.site == jobs.LOCAL:
            jobs.run_local(study, folder, say)
        else:
            jobs.submit_missing(study, folder, made_by, say)
            if arguments.no_wait:
                return 0
            jobs.follow(study, folder, arguments.poll, say)
    left = jobs.missing(study, folder)
    if not left:
        say(f"all {len(list(plan.runs(study)))} runs are done")
    if arguments.report:
        report(argparse.Namespace(file=arguments.file, mixed=False, others=arguments.others, serif=arguments.serif))
    if left:
        say(f"{len(left)} runs are missing, the first {left[0].stem}: see {folder / 'logs'}, and run the study again")
    return 1 if left else 0


def dry_run(study: Study, folder: Path, made_by: str) -> int:
    """Print the jobs without running them.

    :returns: the exit status, 0
    """
    if study.site == jobs.LOCAL:
        missing = list(jobs.missing(study, folder))
        for run in missing:
            words = shlex.join(launches.command(study, run, folder))
            print(f"hpccoll run -np {study.ranks(run.nodes)} --nodes {run.nodes} -- {words}")
        print(f"# {len(missing)} runs here, one after the other, each of at most {study.minutes} minutes")
        return 0
    several = list(jobs.scripts(study, folder, made_by))
    for _, text in several:
        print(text)
    hours, runs = sum(job.node_hours for job, _ in several), sum(len(job.runs) for job, _ in several)
    budget = f" of {study.node_hours:g}" if study.node_hours else ""
    print(
        f"# {len(several)} jobs with {runs} runs, on up to {max(study.nodes)} nodes, "
        f"of {study.minutes} minutes each: at most {hours:.3g}{budget} node hours"
    )
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Print a line per point.

    :returns: the exit status: 0 if all runs are done, else 1
    """
    study, folder = opened(arguments)
    with book.alone(folder, None) as free:
        known = book.Book.open(folder)
        jobs.look(study, known)
        if free:  # else the running study writes the record
            known.save()
    missing = {run.stem for run in jobs.missing(study, folder)}
    there = {stem: job for job in known.active() for stem in job.runs}
    print(f"{'scaling':<8} {'nodes':>6} {'done':>6} {'of':>4}  jobs")
    points: dict[tuple[str, int], list[str]] = {}
    for run in plan.runs(study):
        points.setdefault(run.point, []).append(run.stem)
    for (scaling, nodes), stems in points.items():
        found = {f"{there[s].number} {there[s].state}".strip() for s in stems if s in there}
        done = sum(stem not in missing for stem in stems)
        state = ", ".join(sorted(found)) or ("" if done == len(stems) else "missing: run the study again")
        print(f"{scaling:<8} {nodes:>6} {done:>6} {len(stems):>4}  {state}")
    print(
        jobs.progress(study, known)
        + (f"; {known.spent():.3g} of {study.node_hours:g} node hours" * bool(study.node_hours))
    )
    return 1 if missing else 0


def collect_study(arguments: argparse.Namespace) -> int:
    """Write the file with all results.

    :returns: the exit status, 0
    """
    study, folder = opened(arguments)
    found = collect.collect(study, folder, arguments.mixed, arguments.others)
    files.write(collect.output(folder, study), found)
    say(f"{collect.output(folder, study)}: {len(found.launches)} launches, {len(found.cases)} cases")
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Write the report.

    :returns: the exit status, 0
    """
    study, folder = opened(arguments)
    found = collect.collect(study, folder, arguments.mixed, arguments.others)
    files.write(collect.output(folder, study), found)
    left = jobs.missing(study, folder)
    more = [f"{len(left)} of {len(list(plan.runs(study)))} runs are missing, the first {left[0].stem}"] if left else []
    say(str(page.write(found, study.name, folder, more, arguments.serif)))
    return 0


def as_rank(arguments: argparse.Namespace) -> int:
    """Run a program as one rank, see rank.py.

    :returns: its exit status
    """
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    return rank.run(arguments.log, arguments.name, arguments.warmup, command)
