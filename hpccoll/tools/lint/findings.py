# SPDX-License-Identifier: Apache-2.0
"""A finding, and a rule that makes findings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Said(NamedTuple):
    """What a rule says: where, what is wrong, what to do."""

    line: int
    problem: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    """A name, `error` (the job will fail or run wrong) or `warning` (it may, or wastes time), and the function."""

    name: str
    severity: str
    about: str
    find: Callable[[Any], Iterable[Said]]


@dataclass(frozen=True)
class Finding:
    """Something wrong with a script, at a line that counts from 1."""

    rule: str
    severity: str
    line: int
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.severity}: {self.problem}: {self.remedy} [{self.rule}]"


Find = Callable[[Any], Iterable[Said]]


def rule(table: list[Rule], name: str, severity: str) -> Callable[[Find], Find]:
    """Put a function into a table of rules; its docstring becomes its line in the documentation."""

    def add(find: Find) -> Find:
        about = " ".join((find.__doc__ or "").split()).removesuffix(".")
        table.append(Rule(name, severity, about, find))
        return find

    return add
