# SPDX-License-Identifier: Apache-2.0
"""A parsed job script: its directives, the lines that start ranks, and the environment at each of them."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from hpccoll.tools.lint import jsrun, lsf, shell, slurm
from hpccoll.tools.lint.options import Grammar, Parsed, parse

LAUNCHERS = {
    "srun": "srun",
    "jsrun": "jsrun",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "orterun": "mpirun",
    "prterun": "mpirun",
}
HPCCOLL_RUN = ("hpccoll", "run")
WRAPPERS = {"timeout", "nice", "ionice", "numactl", "stdbuf", "setsid", "unbuffer"}
"""Programs that run the command behind their own options."""
SCHEDULERS: dict[str, Grammar] = {"SBATCH": slurm.sbatch, "BSUB": lsf.bsub}
PLAIN = {
    "hostname", "date", "echo", "env", "printenv", "nvidia-smi", "rocm-smi", "lscpu", "numactl", "mkdir", "rm", "cp",
    "rsync", "tar", "sleep", "true", "ls", "cat", "uname", "free", "df", "bash", "sh", "taskset", "id", "pwd",
}  # fmt: skip
"""Programs that do not use MPI."""
TWO_VALUES = {"--mca", "-mca", "--gmca", "-gmca", "--prtemca", "--pmixmca", "-genv", "-env"}
"""Options of mpirun that take two values."""
STARTERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"}
"""Programs that start the ranks of a node themselves, so that one task per node is right."""


@dataclass(frozen=True)
class Launch:
    """A line that starts ranks."""

    launcher: str
    """srun, jsrun or mpirun."""
    words: tuple[str, ...]
    """The words after the launcher, with known variables expanded."""
    line: int
    end: str
    """The operator or newline behind it."""
    environment: Mapping[str, str]
    parsed: Parsed

    @property
    def background(self) -> bool:
        """Whether the script goes on beside it."""
        return self.end == "&"

    @property
    def program(self) -> str:
        """The name of the program that is started, without its folder."""
        return PurePath(self.parsed.rest[0]).name if self.parsed.rest else ""

    @property
    def uses_mpi(self) -> bool:
        """Whether the tasks are the ranks, and find each other through MPI."""
        return bool(self.program) and self.program not in PLAIN and not STARTERS & set(self.parsed.rest[:3])


@dataclass
class Script:
    """A job script. Sizes of a heterogeneous job are left out of the options, as each component has its own."""

    text: str = ""
    scheduler: str = ""
    """slurm or lsf; "" for a script without directives."""
    options: Parsed = field(default_factory=Parsed)
    """The options of all directives together."""
    lines: dict[str, list[int]] = field(default_factory=dict)
    """The lines at which each option was given, in order."""
    problems: list[tuple[int, str]] = field(default_factory=list)
    """Directives that the scheduler cannot read: line and reason."""
    late: list[int] = field(default_factory=list)
    """Lines of directives after the first command, which Slurm does not read."""
    heterogeneous: bool = False
    launches: list[Launch] = field(default_factory=list)
    commands: list[shell.Command] = field(default_factory=list)
    head: int = 1
    """Line of the first directive."""

    def line_of(self, option: str) -> int:
        """Return the line at which an option was given last; the first directive's line if it was not given."""
        return self.lines.get(option, [self.head])[-1]


def read(text: str) -> Script:
    """Parse the text of a job script."""
    script = Script(text=text, commands=shell.read(text))
    first = script.commands[0].line if script.commands else len(text.splitlines()) + 1
    for line, words in enumerate(text.splitlines(), 1):
        for prefix, grammar in SCHEDULERS.items():
            if words.startswith(f"#{prefix}"):
                _directive(script, grammar, line, words.removeprefix(f"#{prefix}"), line > first)
    if script.heterogeneous:
        script.options.values = {n: v for n, v in script.options.values.items() if n not in slurm.SIZES}
    _follow(script)
    return script


def _directive(script: Script, grammar: Grammar, line: int, text: str, late: bool) -> None:
    """Read one #SBATCH or #BSUB line; Slurm reads none after the first command."""
    if not script.scheduler:
        script.scheduler, script.head = ("slurm" if grammar is slurm.sbatch else "lsf"), line
    if late and grammar is slurm.sbatch:
        script.late.append(line)
        return
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        script.problems.append((line, f"{grammar.command} cannot read this line ({error})"))
        return
    if words in (["hetjob"], ["packjob"]) and grammar is slurm.sbatch:
        script.heterogeneous = True
        return
    parsed = parse(grammar, words)
    script.options.values |= parsed.values
    for name in parsed.values:
        script.lines.setdefault(name, []).append(line)
    script.problems += [(line, problem) for problem in parsed.problems]
    if parsed.rest and grammar is slurm.sbatch:
        script.problems.append((line, f"{parsed.rest[0]!r} is no option, and everything after it is not read"))


def _follow(script: Script) -> None:
    """Go through the commands, keep the variables that they assign, and collect the lines that start ranks."""
    known: dict[str, str] = {}
    if script.scheduler == "slurm":
        known |= slurm.variables(slurm.sizes(script.options.values))
    for command in [one for outer in script.commands for one in (outer, *shell.inner(outer))]:
        given = {name: shell.expand(value, known) for name, value in command.assignments.items()}
        argv = tuple(word for written in command.argv for word in shell.words_of(written, known))
        if not argv or argv[0] == "export":
            for name, value in command.assignments.items():
                shell.assign(name, value, known)
            continue
        argv = _without_wrapper(argv)
        if argv[:2] == HPCCOLL_RUN:
            argv = ("mpirun", *argv[2:])
        if launcher := LAUNCHERS.get(PurePath(argv[0]).name):
            script.launches.append(_launch(launcher, argv[1:], command, known | given))


def _without_wrapper(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out `timeout 1h` and its like before a launcher."""
    if PurePath(argv[0]).name not in WRAPPERS:
        return argv
    starts = (i for i, word in enumerate(argv) if PurePath(word).name in LAUNCHERS or argv[i : i + 2] == HPCCOLL_RUN)
    return argv[next(starts, 0) :]


def _launch(launcher: str, words: tuple[str, ...], command: shell.Command, environment: dict[str, str]) -> Launch:
    grammar = {"srun": slurm.srun, "jsrun": jsrun.jsrun}.get(launcher)
    parsed = parse(grammar, words) if grammar else _mpirun(words)
    if launcher == "srun":
        environment |= dict(part.split("=", 1) for part in parsed.values.get("export", "").split(",") if "=" in part)
    return Launch(launcher, words, command.line, command.end, environment, parsed)


def _mpirun(words: tuple[str, ...]) -> Parsed:
    """Parse mpirun's number of ranks, and skip its other options, which differ between MPI libraries.

    The program begins at the latest where a word can be no option's value.
    """
    parsed, left = Parsed(rest=words), list(words)
    while left and left[0].startswith("-"):
        name = left.pop(0)
        values = [left.pop(0) for _ in range(1 + (name in TWO_VALUES)) if left and not left[0].startswith("-")]
        if name in ("-np", "-n", "--np", "-c") and values:
            parsed.values["np"] = values[0]
        if "oversubscribe" in " ".join([name, *values]).lower():
            parsed.values["oversubscribe"] = ""
    return parsed
