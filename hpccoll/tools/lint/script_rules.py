# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with a script for any scheduler, before a line of it means anything."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hpccoll.tools.lint.findings import Rule, Said, rule
from hpccoll.tools.lint.job import Job

RULES: list[Rule] = []
OTHER_INTERPRETER = re.compile(r"#!(?!.*\b(ba|da)?sh\b)")
"""A first line that gives the script to Python, to the C shell or the like."""


@rule(RULES, "line-ends-of-dos", "error")
def line_ends_of_dos(job: Job) -> Iterator[Said]:
    """Lines that end as in Windows (CR LF): sbatch refuses the script, bsub runs it with a CR in each last word."""
    if "\r\n" in job.text:
        line = job.text[: job.text.index("\r\n")].count("\n") + 1
        yield Said(line, "lines end with CR LF, as in Windows", "dos2unix, or sed -i 's/\\r$//'")


@rule(RULES, "shell-syntax", "error")
def shell_syntax(job: Job) -> Iterator[Said]:
    """What bash cannot read, as a quote that is not closed or an `if` without its `fi`: the job dies there."""
    bash = shutil.which("bash")
    if not bash or OTHER_INTERPRETER.match(job.text) or "\r\n" in job.text:
        return
    done = subprocess.run(  # -n: read all, execute nothing; extglob: what a `shopt` in the script would allow
        [bash, "-O", "extglob", "-n", "/dev/stdin"],
        input=job.text, env={"LC_ALL": "C"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and (found := re.search(r"line (\d+): (.*)", done.stderr)):
        line = min(int(found[1]), len(job.text.splitlines()))
        yield Said(line, f"bash cannot read this: {found[2]}", "close it here, or what was opened above")


def missing_folder(file: str, start: str) -> str:
    """The folder of a job's output `file` if it is not there; "" if it is, or has a part that only the job knows.

    `start`: the folder in which the job will run, as far as it says; the current one otherwise.
    """
    folder = file.partition("%")[0].rpartition("/")[0]
    return "" if Path(start, folder).is_dir() else folder
