# SPDX-License-Identifier: Apache-2.0
"""Lists of hosts and their slots, in the notations of the schedulers."""

import re
from typing import NamedTuple

from hpccoll import errors

__all__ = ["Allocation", "expand", "expand_counts", "of_lines", "of_pairs"]

LONGEST = 1 << 20
"""More hosts than any machine has: a range of this length is a misprint."""


class Allocation(NamedTuple):
    """The hosts that a scheduler has allocated to the job."""

    scheduler: str
    job: str
    hosts: tuple[str, ...]
    """In the scheduler's order, each once."""
    slots: tuple[int, ...]
    """Slots of each host, in tasks or in cores, as the scheduler counts them. Empty if it does not say."""

    def __str__(self) -> str:
        count = len(self.hosts)
        return f"{self.scheduler} job {self.job} on {count} host{'s' if count > 1 else ''}"


def expand(text: str) -> list[str]:
    """Expand a Slurm host list: "h[1-3,7],n[01-02]r[1-2],login" -> h1 h2 h3 h7 n01r1 n01r2 n02r1 n02r2 login.

    Several brackets multiply, and the last one varies fastest. Numbers keep the width of the range's start ("08-10").

    :raises InvalidArgumentError: the text is no host list
    """
    found: list[str] = []
    for word in _split(text):
        names = [""]
        for plain, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", word):
            tails = [plain] if plain else _numbers(ranges, text)
            if len(names) * len(tails) > LONGEST:
                raise _wrong(text, f"more than {LONGEST} hosts")
            names = [name + tail for name in names for tail in tails]
        found += names
    return found


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    words, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise _wrong(text, "brackets do not match")
        if char == "," and not depth:
            words.append("")
        else:
            words[-1] += char
    if depth or not all(words):
        raise _wrong(text, "brackets do not match" if depth else "a name is empty")
    return words


def _numbers(ranges: str, text: str) -> list[str]:
    found = []
    for part in ranges.split(","):
        if not (match := re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part)):
            raise _wrong(text, f"{part!r} is no number and no range")
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < LONGEST:
            raise _wrong(text, f"{part!r} is no range")
        found += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return found


def expand_counts(text: str) -> list[int]:
    """Expand the tasks per host from Slurm's short form: "4(x2),3" -> 4 4 3.

    :raises InvalidArgumentError: the text is no list of counts
    """
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,18})(?:\(x([0-9]{1,18})\))?", part)
        if not match or len(counts) + int(match[2] or 1) > LONGEST:
            raise _wrong(text, f"{part!r} is neither a count nor one like 4(x2)")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def of_pairs(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Read hosts and slots from a text like "hostA 4 hostB 2".

    :raises InvalidArgumentError: names and numbers do not alternate
    """
    words = text.split()
    if len(words) % 2 or not all(re.fullmatch(r"[0-9]{1,18}", word) for word in words[1::2]):
        raise _wrong(text, "hosts and counts do not alternate")
    return tuple(words[::2]), tuple(map(int, words[1::2]))


def of_lines(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Read hosts and slots from a host file, which has one line (or word) per slot."""
    slots: dict[str, int] = {}
    for host in text.split():
        slots[host] = slots.get(host, 0) + 1
    return tuple(slots), tuple(slots.values())


def _wrong(text: str, why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"the hosts {text[:200]!r} cannot be read: {why}")
