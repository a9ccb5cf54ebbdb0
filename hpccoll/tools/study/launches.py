# SPDX-License-Identifier: Apache-2.0
"""The command that each rank of a run executes, and whether the study's file still describes it."""

import shlex
from pathlib import Path

from hpccoll import config
from hpccoll.tools.study import plan
from hpccoll.tools.study.book import Book
from hpccoll.tools.study.plan import DEFAULT, Arm, Run, Study, StudyError

FILE = config.variable("study")


def result(folder: Path, run: Run) -> Path:
    """The file that a run writes when it has succeeded."""
    return folder / "runs" / f"{run.stem}.h5"


def command(study: Study, run: Run, folder: Path, python: str = "python") -> tuple[str, ...]:
    """Make the command of a run; `env` gives the ranks their variables under every launcher.

    :raises StudyError: the command has a word in braces that is not known
    """
    arm = study.arms.get(run.arm, Arm())
    words = filled(study, run)
    file = str(result(folder, run))
    variables = {"OMP_NUM_THREADS": "1"} if study.oversubscribed else {}
    variables |= arm.variables
    if study.bench:
        words = [python, "-P", "-m", "hpccoll", "bench", *words, "--quiet", "--out", file]
        words += ["--expect", str(study.ranks(run.nodes))]
        words += ["--oversubscribed"] if study.oversubscribed else []
    else:
        variables[FILE] = file
        words = [python, *words[1:]] if words[0] == "python" else words
        if study.what.log:
            log = ["--log", study.what.log, "--name", study.name, "--warmup", str(study.what.warmup)]
            words = [python, "-P", "-m", "hpccoll", "study", "rank", *log, "--", *words]
    return ("env", *(f"{name}={value}" for name, value in sorted(variables.items())), *words)


def number(value: float) -> str:
    """Write a size with all of its digits, a whole one as an integer."""
    return str(int(value)) if value == int(value) else repr(value)


def filled(study: Study, run: Run) -> list[str]:
    """The words of the study's command with this run's values."""
    values = {
        "size": number(study.size(run.scaling, run.nodes)), "nodes": run.nodes, "ranks": study.ranks(run.nodes),
        "arm": "" if run.arm == DEFAULT else run.arm, "scaling": run.scaling,
    }  # fmt: skip
    words = [*study.what.command, *study.arms.get(run.arm, Arm()).arguments]
    filled_in = []
    for word in words:
        try:
            filled_in.append(word.format(**values))
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            known = ", ".join(f"{{{name}}}" for name in values)
            text = f"command: {word!r} has something else in braces; there are {known}, and {{{{ and }}}} for braces"
            raise StudyError(text) from None
    return filled_in


def asked(study: Study, run: Run) -> list[str]:
    """Return what a run measures, in words: its variables, its command, and what is read in its log."""
    variables = study.arms.get(run.arm, Arm()).variables
    log = [study.what.log, f"warmup={study.what.warmup}"] if study.what.log else []
    return [*(f"{name}={value}" for name, value in sorted(variables.items())), *filled(study, run), *log]


def refuse_changed(study: Study, folder: Path) -> None:
    """Refuse a file that describes runs otherwise than when they ran: their results would count as what it says now.

    :raises StudyError: with the first of these runs, what it measured, and what the file describes
    """
    ran = {stem: words for job in Book.open(folder).jobs for stem, words in zip(job.runs, job.asked, strict=False)}
    changed = [
        run
        for run in plan.runs(study)
        if ran.get(run.stem, asked(study, run)) != asked(study, run) and result(folder, run).exists()
    ]
    if changed:
        first = changed[0]
        raise StudyError(
            f"{len(changed)} runs have measured something else than the study's file describes now, the first "
            f"{first.stem}: `{shlex.join(ran[first.stem])}` and not `{shlex.join(asked(study, first))}`: give the "
            f"study another name, or remove the results of these runs in {folder / 'runs'} to measure them again"
        )
