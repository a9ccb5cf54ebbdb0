# SPDX-License-Identifier: Apache-2.0
"""Parses the options of a command by a table of its grammar, as getopt_long(3) or bsub would."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Option:
    """An option of a command; names without dashes."""

    long: str
    short: str = ""
    value: str = "yes"
    """Whether it takes a value: "no", "yes", or "maybe" (then only attached: --x=1, -x1)."""


class Grammar:
    """The options of one command. `dashes`: 2 for --long, 1 for -long (bsub)."""

    def __init__(self, command: str, options: Iterable[Option], dashes: int = 2) -> None:
        self.command = command
        self.dashes = dashes
        self.long = {option.long: option for option in options if option.long}
        self.short = {option.short: option for option in options if option.short}

    def find_long(self, name: str) -> Option | str:
        """Find an option by its name or by an unambiguous beginning of it.

        :returns: the option, or a text that says what is wrong
        """
        if name in self.long:
            return self.long[name]
        fits = [option for long, option in self.long.items() if long.startswith(name)] if self.dashes == 2 else []
        if len(fits) == 1:
            return fits[0]
        near = difflib.get_close_matches(name, self.long, 1)
        dashes = "-" * self.dashes
        hint = f"; did you mean {dashes}{near[0]}?" if near else ""
        return f"{self.command} has no option {dashes}{name}{hint}"


@dataclass
class Parsed:
    """The parsed options of a command."""

    values: dict[str, str] = field(default_factory=dict)
    """Values by long name; the last value of an option counts."""
    rest: tuple[str, ...] = ()
    """The words after the options."""
    problems: list[str] = field(default_factory=list)
    """Options that could not be read, and why."""

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> str | None:
        """Return the value of an option; "" for an option without one; None if the option was not given."""
        return self.values.get(name)


def parse(grammar: Grammar, words: Sequence[str]) -> Parsed:
    """Parse the options in `words`, up to the first word that is no option or to `--`."""
    parsed, left = Parsed(), list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        if grammar.dashes == 1:
            _single_dash(grammar, word[1:], left, parsed)
        elif word.startswith("--"):
            _long(grammar, word[2:], left, parsed)
        else:
            _short(grammar, word[1:], left, parsed)
    parsed.rest = tuple(left)
    return parsed


def _long(grammar: Grammar, word: str, left: list[str], parsed: Parsed) -> None:
    name, given, value = word.partition("=")
    option = grammar.find_long(name)
    if isinstance(option, str):
        parsed.problems.append(option)
    elif given and option.value == "no":
        parsed.problems.append(f"{grammar.command} --{option.long} takes no value")
    elif given or option.value != "yes":
        parsed.values[option.long] = value
    else:
        _take(grammar, option, f"--{option.long}", left, parsed)


def _short(grammar: Grammar, word: str, left: list[str], parsed: Parsed) -> None:
    """Parse `-n4`, `-n 4`, or flags together as in `-lK1`."""
    option = grammar.short.get(word[0])
    if option is None:
        parsed.problems.append(f"{grammar.command} has no option -{word[0]}")
    elif option.value == "no":
        parsed.values[option.long] = ""
        if word[1:]:
            _short(grammar, word[1:], left, parsed)
    elif word[1:].startswith("="):
        better = f"-{word[0]}{word[2:]} or --{option.long}{word[1:]}"
        parsed.problems.append(f"{grammar.command} takes -{word} as the value {word[1:]!r}: write {better}")
    elif word[1:] or option.value == "maybe":
        parsed.values[option.long] = word[1:]
    else:
        _take(grammar, option, f"-{word}", left, parsed)


def _single_dash(grammar: Grammar, word: str, left: list[str], parsed: Parsed) -> None:
    """Parse `-nnodes 4`, or a one-letter option with its value attached: `-W2:00`."""
    option = grammar.find_long(word)
    if isinstance(option, Option):
        if option.value == "yes":
            _take(grammar, option, f"-{word}", left, parsed)
        else:
            parsed.values[option.long] = ""
    elif (short := grammar.long.get(word[0])) and short.value == "yes" and not word[1:].isalpha():
        parsed.values[short.long] = word[1:]
    else:
        parsed.problems.append(option)


def _take(grammar: Grammar, option: Option, shown: str, left: list[str], parsed: Parsed) -> None:
    if left:
        parsed.values[option.long] = left.pop(0)
    else:
        parsed.problems.append(f"{grammar.command} {shown} needs a value")
