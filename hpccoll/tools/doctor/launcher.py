# SPDX-License-Identifier: Apache-2.0
"""The launcher: how many ranks it started, how many reported, and whether MPI agrees."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from hpccoll import detect
from hpccoll.checks.finding import ERROR, NOTE, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.detect import contradictions
from hpccoll.text import some_ranks
from hpccoll.tools.doctor import identity

NAME = "launcher"


def collect(env: Mapping[str, str]) -> Facts:
    """Read the launcher's facts about this process, and the reason if MPI believes that it is alone."""
    process, place = identity.read(env), detect.place(env)
    problem = contradictions.singleton_problem(env, 1)
    return {
        "launcher": process.launcher,
        "rank": process.rank,
        "place": asdict(place) if place else None,
        "if alone": asdict(problem) if problem else None,
    }


def judge(survey: Survey) -> list[Finding]:
    """Find missing ranks, contradictions between launcher and MPI, and processes that MPI believes to be alone."""
    return [*_alone(survey), *_absent(survey), *_contradictions(survey)]


def _mpi_is_up(survey: Survey) -> bool:
    return all("library" in report.facts.get("mpi", {}) for report in survey.reports)


def _alone(survey: Survey) -> Iterator[Finding]:
    """Find a job of one process: MPI did not connect its processes, or the user started only one."""
    if len(survey.reports) > 1 or survey.size != 1:
        return
    problem = survey.reports[0].facts[NAME]["if alone"]
    if problem is None:
        yield Finding(
            NAME,
            NOTE,
            "one process: nothing was looked at between nodes",
            "most start-up trouble is between them",
            "Ask inside a job: `srun -N2 -n2 python -m hpccoll doctor`, `hpccoll run -H h1,h2 hpccoll doctor`; "
            "without MPI and job: `hpccoll doctor -H h1,h2`",
        )
    elif _mpi_is_up(survey):
        matters = "each process is a job of its own and overwrites the others' files"
        yield Finding(NAME, ERROR, problem["seen"], matters, problem["remedy"])


def _absent(survey: Survey) -> Iterator[Finding]:
    absent = set(range(survey.size)) - {report.rank for report in survey.reports}
    if absent:
        yield Finding(
            NAME,
            ERROR,
            f"{some_ranks(absent)} of {survey.size} did not report",
            "a collective operation waits for every rank",
            "See whether their processes were started (`squeue -s`, `ps` on their hosts) and what they printed. "
            "Without MPI, ranks exchange reports in the current folder, which all hosts must share (--meet FOLDER for "
            "another)",
        )


def _contradictions(survey: Survey) -> Iterator[Finding]:
    if len(survey.reports) > 1 and _mpi_is_up(survey):
        places = [report.facts[NAME]["place"] for report in survey.reports]
        one_library = [""] * len(places)  # mpi.py compares the libraries
        known = [place and detect.Place(**place) for place in places]
        problem = contradictions.contradiction_between(known, one_library)
        if problem:
            yield Finding(NAME, ERROR, problem.seen, "hpccoll.init() refuses it", problem.remedy)
