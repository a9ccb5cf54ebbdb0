# SPDX-License-Identifier: Apache-2.0
"""The launcher: how many ranks it says there are, how many came, and whether MPI agrees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from hpccoll import detect
from hpccoll.checks.finding import ERROR, NOTE, Facts, Finding
from hpccoll.checks.survey import Survey
from hpccoll.text import some_ranks
from hpccoll.tools.doctor import identity

NAME = "launcher"


def collect(env: Mapping[str, str]) -> Facts:
    """What the environment claims, and what is known to go wrong with such a launcher."""
    process, place = identity.read(env), detect.place(env)
    return {
        "launcher": process.launcher,
        "rank": process.rank,
        "place": asdict(place) if place else None,
        "if alone": detect.singleton_remedy(env, 1),
    }


def judge(survey: Survey) -> list[Finding]:
    """Ranks that are missing, launchers that tell another story than MPI, processes that MPI believes to be alone."""
    found = []
    first = survey.reports[0].facts[NAME]
    if (
        len(survey.reports) == 1
        and survey.size == 1
        and first["if alone"]
        and "library" in survey.reports[0].facts.get("mpi", {})
    ):
        seen, _, remedy = first["if alone"].partition(": mpi4py's")
        remedy = "mpi4py's" + remedy
        found.append(
            Finding(
                NAME, ERROR, seen, "each process is a job of its own and overwrites the others' files", remedy
            )
        )
    here = {mine.rank for mine in survey.reports}
    absent = set(range(survey.size)) - here
    if absent:
        found.append(
            Finding(
                NAME,
                ERROR,
                f"{some_ranks(absent)} of {survey.size} did not come to the meeting",
                "a collective operation waits for every rank",
                "See whether their processes were started (`squeue -s`, `ps` on their hosts) and what they printed; "
                "without MPI ranks meet in the current folder, which all hosts must share (--meet FOLDER for another)",
            )
        )
    told = [mine.facts[NAME]["place"] for mine in survey.reports]
    if len(survey.reports) > 1 and all("library" in mine.facts.get("mpi", {}) for mine in survey.reports):
        one_library = [""] * len(told)  # those are mpi.py's to compare
        seen, _, remedy = detect.contradiction(
            [place and detect.Place(**place) for place in told], one_library
        ).partition(". ")
        if seen:
            found.append(Finding(NAME, ERROR, seen, "hpccoll.init() refuses it", remedy))
    if len(survey.reports) == 1 and survey.size == 1 and not first["if alone"]:
        found.append(
            Finding(
                NAME,
                NOTE,
                "one process: nothing was looked at between nodes",
                "most start-up trouble is between them",
                "Ask inside a job: `srun -N2 -n2 python -m hpccoll doctor`, `hpccoll run -H h1,h2 hpccoll doctor`; "
                "without MPI and job: `hpccoll doctor -H h1,h2`",
            )
        )
    return found
