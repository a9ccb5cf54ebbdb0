# SPDX-License-Identifier: Apache-2.0
"""A study, as its TOML file describes it, and its runs. The fields are the keys of the file."""

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hpccoll.errors import HpccollError
from hpccoll.tools import written
from hpccoll.tools.submit.script import NAME_RULE, is_name

SCALINGS = ("weak", "strong")
DEFAULT = "default"
"""The only arm of a study that names none."""


class StudyError(HpccollError):
    """A study cannot be run, collected or reported as it is; the text says what to change."""


@dataclass(frozen=True)
class Arm:
    """A variant that is measured at every point."""

    variables: Annotated[dict[str, str], 'variables of its ranks, as `{ HPCCOLL_WIRE = "fp16" }`'] = field(
        default_factory=dict
    )
    arguments: Annotated[list[str], "words behind the command"] = field(default_factory=list)


@dataclass(frozen=True)
class What:
    """The measured command: `[bench]`, arguments of `hpccoll bench`, or `[program]`, your program."""

    command: Annotated[list[str], "its words; `{size}`, `{nodes}`, `{ranks}`, `{arm}`, `{scaling}` are filled in"]
    size: Annotated[
        int | float,
        "work per rank on the fewest nodes: weak scaling keeps it, strong scaling divides it; a whole number stays one",
    ] = 1.0
    warmup: Annotated[int, "program with `log`: steps that are not counted"] = 5
    log: Annotated[str, "program: a regular expression whose group `seconds` is found in each step's line"] = ""


@dataclass(frozen=True)
class Study:
    """The keys of the file's top level."""

    name: Annotated[str, "names the folder and the files of the study"]
    nodes: Annotated[list[int], "numbers of nodes: a job for each"]
    bench: Annotated[What | None, "either this"] = None
    program: Annotated[What | None, "or this"] = None
    scaling: Annotated[list[str], "`weak`, `strong` or both"] = field(default_factory=lambda: ["weak"])
    ranks_per_node: Annotated[int, "ranks on each node"] = 1
    repetitions: Annotated[int, "launches of each point; an interval needs 5"] = 3
    minutes: Annotated[int, "time limit of a job"] = 30
    node_hours: Annotated[float, "budget: jobs that could exceed it are left out; 0: none"] = 0.0
    site: Annotated[str, "`local`, a site of `hpccoll submit`, or a file"] = "local"
    account: Annotated[str, "the project that pays"] = ""
    gpus: Annotated[bool, "whether the jobs use the GPUs of their nodes"] = False
    launcher: Annotated[str, "srun, jsrun or mpirun; empty: the site's"] = ""
    oversubscribed: Annotated[bool, "accept more ranks than processors; the results are marked"] = False
    arms: Annotated[dict[str, Arm], "`[arms.NAME]`"] = field(default_factory=dict)

    @property
    def what(self) -> What:
        """The one of `bench` and `program` that is given."""
        found = self.bench or self.program
        assert found
        return found

    def ranks(self, nodes: int) -> int:
        """The ranks of a job."""
        return nodes * self.ranks_per_node

    def size(self, scaling: str, nodes: int) -> float:
        """The work of one rank."""
        return self.what.size if scaling == "weak" else self.what.size * min(self.nodes) / nodes


@dataclass(frozen=True)
class Run:
    """One launch of one arm at one point."""

    scaling: str
    """The first one, if the launch counts for both."""
    nodes: int
    arm: str
    repetition: int

    @property
    def stem(self) -> str:
        """The name of its file."""
        return f"{self.scaling}-{self.nodes}-nodes-{self.arm}-{self.repetition}"

    @property
    def point(self) -> tuple[str, int]:
        """The key of a job's runs."""
        return self.scaling, self.nodes


def scalings(study: Study, nodes: int) -> list[tuple[str, ...]]:
    """List the kinds of scaling that are measured on so many nodes; those of one launch stand together.

    On the fewest nodes weak and strong scaling are the same command, unless it contains `{scaling}`.
    """
    words = [*study.what.command, *(word for arm in study.arms.values() for word in arm.arguments)]
    if nodes == min(study.nodes) and not any("{scaling" in word for word in words):
        return [tuple(study.scaling)]
    return [(scaling,) for scaling in study.scaling]


def runs(study: Study) -> Iterator[Run]:
    """Yield all runs: few nodes first, and the arms in turn, so an interrupted study has run all arms equally often."""
    for nodes in sorted(set(study.nodes)):
        for scaling, *_ in scalings(study, nodes):
            for repetition in range(1, study.repetitions + 1):
                for arm in study.arms or {DEFAULT: Arm()}:
                    yield Run(scaling, nodes, arm, repetition)


def folder_of(file: Path, study: Study) -> Path:
    """Where the jobs and results of a study are: beside its file."""
    return file.resolve().parent / f"{study.name}.study"


def load(file: Path) -> Study:
    """Read the file of a study.

    :raises StudyError: it cannot be read, or is wrong
    """
    try:
        values = written.toml(written.read(file), file)
    except written.WrittenError as error:
        raise StudyError(str(error)) from None
    if "arms" in values and isinstance(values["arms"], dict):
        values["arms"] = {name: _record(Arm, arm, f"{file}: arms.{name}") for name, arm in values["arms"].items()}
    for part in ("bench", "program"):
        if part in values:
            given, values[part] = values[part], _record(What, values[part], f"{file}: {part}")
            if "warmup" in given and not values[part].log:
                raise StudyError(
                    f"{file}: {part}: warmup is for steps that `log` finds; a program that reports its steps leaves "
                    f"out the first by study.finish(warmup={given['warmup']})"
                )
    study: Study = _record(Study, values, str(file))
    _check(study, file)
    return study


def _record(kind: Any, values: Any, where: str) -> Any:
    """Make a record of a table, whose keys and types must be those of the record."""
    if not isinstance(values, Mapping):
        raise StudyError(f"{where} is no table")
    hints = {name: get_args(hint)[0] for name, hint in get_type_hints(kind, include_extras=True).items()}
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, 1)
            raise StudyError(f"{where}: no key {name!r}" + (f": did you mean {near[0]}?" if near else ""))
        if not _fits(hints[name], value):
            raise StudyError(f"{where}: {name} = {value!r} is of the wrong type: {_wanted(hints[name])} is needed")
    given = {name: float(value) if hints[name] is float else value for name, value in values.items()}
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    if lacking := [name for name in missing if name not in given]:
        raise StudyError(f"{where}: no {', '.join(lacking)}")
    return kind(**given)


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value of TOML has the type of a field."""
    arguments = get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if get_origin(hint) is list:
        return isinstance(value, list) and all(type(item) is arguments[0] for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(type(item) is arguments[1] for item in value.values())
    return type(value) is hint or type(value) in arguments


def _wanted(hint: Any) -> str:
    """Say what a value of a field must be."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text in quotes"}
    inside = {int: "whole numbers", str: "texts in quotes"}
    if get_origin(hint) is list:
        return f"a list of {inside[get_args(hint)[0]]} in [ ]"
    if get_origin(hint) is dict:
        return f"a table of {inside.get(get_args(hint)[1], 'tables')}"
    return words.get(hint) or " or ".join(words.get(each, "a table") for each in get_args(hint))


def _check_sizes(study: Study, file: Path) -> None:
    """Refuse a whole size that strong scaling would divide into a fraction.

    :raises StudyError: with the number of nodes and the size there
    """
    what, fewest = study.what, min(study.nodes)
    if "strong" not in study.scaling or isinstance(what.size, float) or not any("{size}" in w for w in what.command):
        return
    for nodes in study.nodes:
        size = study.size("strong", nodes)
        if size != int(size):
            raise StudyError(
                f"{file}: size = {what.size} on {fewest} nodes is {size:g} on {nodes} under strong scaling, which is "
                f"no whole number: nodes and size must divide, as size = {math.lcm(*study.nodes) // fewest} or a "
                f"multiple of it does; where the program takes fractions, write size = {what.size}.0"
            )


def _check(study: Study, file: Path) -> None:
    """Check the combinations of fields.

    :raises StudyError: with the reason
    """
    problems = {
        "give either [bench] or [program]": bool(study.bench) == bool(study.program),
        "nodes: at least one number, none below 1": not study.nodes or min(study.nodes) < 1,
        "scaling: weak, strong, or both": not study.scaling or not set(study.scaling) <= set(SCALINGS),
        "ranks_per_node, repetitions, minutes: at least 1": min(study.ranks_per_node, study.repetitions, study.minutes)
        < 1,
        f"name and arms: {NAME_RULE}": not all(map(is_name, (study.name, *study.arms))),
    }
    for text, wrong in problems.items():
        if wrong:
            raise StudyError(f"{file}: {text}")
    for key in ("nodes", "scaling"):
        values = getattr(study, key)
        if twice := [value for value in values if values.count(value) > 1]:
            raise StudyError(f"{file}: {key}: {twice[0]} is there twice; `repetitions` measures all points more often")
    _check_sizes(study, file)
    if not study.what.command:
        raise StudyError(f"{file}: command: which program?")
    try:
        groups = re.compile(study.what.log).groupindex
    except re.error as error:
        raise StudyError(f"{file}: log: {error}") from None
    if study.what.log and "seconds" not in groups:
        raise StudyError(f"{file}: log: the pattern has no group (?P<seconds>...)")
