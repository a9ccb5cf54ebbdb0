# SPDX-License-Identifier: Apache-2.0
"""Merges the results of a study's runs into one file, and refuses implausible ones."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from hpccoll.tools.bench import conditions, files, results
from hpccoll.tools.bench.results import Case, Key, Results, ResultsError
from hpccoll.tools.study import launches, plan
from hpccoll.tools.study.plan import DEFAULT, Run, Study


def output(folder: Path, study: Study) -> Path:
    """The file with everything."""
    return folder / f"{study.name}.h5"


def collect(study: Study, folder: Path, mixed: bool = False, others: Sequence[Path] = ()) -> Results:
    """Read the results of all runs that have succeeded.

    :param others: files of `hpccoll bench` that are added as they are
    :param mixed: accept results of different versions or revisions
    :raises ResultsError: there is none, or one cannot be believed
    :raises StudyError: the study's file was changed since they ran
    """
    launches.refuse_changed(study, folder)
    several = []
    for run in plan.runs(study):
        file = launches.result(folder, run)
        if file.exists():
            several.append(labelled(study, run, checked(study, run, files.read(file))))
    if not several:
        raise ResultsError(f"{folder}: no run has succeeded: `hpccoll study run`, and see logs/ there")
    return results.merged([*several, *map(files.read, others)], mixed)


def checked(study: Study, run: Run, found: Results) -> Results:
    """Compare a run with the request.

    :raises ResultsError: the numbers of ranks or nodes differ, or there were more ranks than processors
    """
    for launch in found.launches:
        asked = (study.ranks(run.nodes), run.nodes)
        if (launch["ranks"], launch["nodes"]) != asked:
            raise ResultsError(
                f"{run.stem}: {asked[0]} ranks on {asked[1]} nodes were asked for, and it ran with {launch['ranks']} "
                f"ranks on {launch['nodes']} nodes: if its ranks ran alone, launcher and MPI do not fit together"
            )
        if len(launch.get("placement", [])) == launch["ranks"]:
            conditions.judge(launch["placement"], launch["ranks"], study.oversubscribed)
    return found


def labelled(study: Study, run: Run, found: Results) -> Results:
    """Write the arm and the scaling into the keys of the cases; a launch that counts for two has each case twice."""
    cases = {}
    together = next(several for several in plan.scalings(study, run.nodes) if run.scaling in several)
    for scaling, case in itertools.product(reversed(together), found.cases.values()):
        arm = " ".join(filter(None, ("" if run.arm == DEFAULT else run.arm, case.key.arm)))
        what = f"{case.key.what}, {scaling} scaling" if case.key.kind == "step" else case.key.what
        key: Key = dataclasses.replace(case.key, arm=arm, what=what)
        facts = case.facts | {"size": study.size(scaling, run.nodes), "scaling": scaling}
        cases[key] = dataclasses.replace(case, key=key, facts=facts)
    about = {"study": study.name, "run": run.stem, "definition": dataclasses.asdict(study)}
    return Results([launch | about for launch in found.launches], cases)


def steps(found: Results) -> dict[Key, Case]:
    """The cases that are steps of a program."""
    return {key: case for key, case in found.cases.items() if key.kind == "step"}
