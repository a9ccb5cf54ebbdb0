# SPDX-License-Identifier: Apache-2.0
"""The rules of the linter, and the diagnostics that they make."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """A problem as a rule finds it: the line, what is wrong there, what to do."""

    line: int
    problem: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    """A function that looks for one kind of problem in a script."""

    name: str
    severity: str
    """`error`: the job will fail or run wrong; `warning`: it may, or it wastes time."""
    find: Callable[[Any], Iterable[Problem]]


@dataclass(frozen=True)
class Diagnostic:
    """A problem of a script, with the rule that found it. Lines count from 1."""

    rule: str
    severity: str
    line: int
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.severity}: {self.problem}: {self.remedy} [{self.rule}]"


Find = Callable[[Any], Iterable[Problem]]


def rule(table: list[Rule], name: str, severity: str) -> Callable[[Find], Find]:
    """Put a function into a table of rules."""

    def add(find: Find) -> Find:
        table.append(Rule(name, severity, find))
        return find

    return add
