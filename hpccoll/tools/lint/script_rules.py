# SPDX-License-Identifier: Apache-2.0
"""Problems of scripts for any scheduler: the text itself cannot be read."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hpccoll.tools.as_given import AS_GIVEN
from hpccoll.tools.lint.diagnostics import Problem, Rule, rule
from hpccoll.tools.lint.script import Script

RULES: list[Rule] = []
OTHER_INTERPRETER = re.compile(r"#!(?!.*\b(ba|da)?sh\b)")
"""Matches a first line that names Python, the C shell or another interpreter that is no Bourne shell."""


@rule(RULES, "line-ends-of-dos", "error")
def line_ends_of_dos(script: Script) -> Iterator[Problem]:
    """Lines that end as in Windows (CR LF): sbatch refuses the script, bsub runs it with a CR in each last word."""
    if "\r\n" in script.text:
        line = script.text[: script.text.index("\r\n")].count("\n") + 1
        yield Problem(line, "lines end with CR LF, as in Windows", "dos2unix, or sed -i 's/\\r$//'")


@rule(RULES, "shell-syntax", "error")
def shell_syntax(script: Script) -> Iterator[Problem]:
    """Bash cannot read it, as with an open quote or an `if` without its `fi`: the job dies there."""
    bash = shutil.which("bash")
    if not bash or OTHER_INTERPRETER.match(script.text) or "\r\n" in script.text:
        return
    done = subprocess.run(  # -n: read all, execute nothing; extglob: a `shopt` in the script may allow it
        [bash, "-O", "extglob", "-n", "/dev/stdin"],
        input=script.text.encode("utf-8", AS_GIVEN), env={"LC_ALL": "C"}, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode and (found := re.search(r"line (\d+): (.*)", done.stderr.decode(errors="replace"))):
        line = min(int(found[1]), len(script.text.splitlines()))
        yield Problem(line, f"bash cannot read this: {found[2]}", "close it here, or what was opened above")


def missing_folder(file: str, start: str) -> str:
    """Find out whether the folder of a job's output file is missing.

    :param file: path of the output file, up to its first part that only the job knows (%j)
    :param start: the folder in which the job will run; "" for the current one
    :returns: the folder if it does not exist, else ""
    """
    folder = file.partition("%")[0].rpartition("/")[0]
    return "" if Path(start, folder).is_dir() else folder
