# SPDX-License-Identifier: Apache-2.0
"""Ranks, names and sizes as messages write them, so that all of hpccoll writes them alike."""

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

__all__ = ["byte_size", "call_site", "capitalized", "listed", "parse_ranges", "ranges", "say", "some_ranks"]

MOST_RANKS = 16
"""Ranks, or ranges of them, that a message names before it only counts."""

MOST_FRAMES = 3
"""Functions of the program that a call site names, the innermost first."""
_OWN = str(Path(__file__).parent)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


def say(line: str) -> None:
    """Print a line on stderr. That it cannot be printed (a full disk, a reader that is gone) ends no job."""
    if sys.stderr is not None:  # print() would take stdout
        with contextlib.suppress(OSError, ValueError):  # ValueError: the program has closed it
            print(line, file=sys.stderr, flush=True)


def some_ranks(ranks: Iterable[int]) -> str:
    """Name ranks in a sentence: `rank 3`, `ranks 0, 2`, `ranks 0-3, 8`, at most 16 ranks or ranges.

    :param ranks: in any order; duplicates are named once
    :returns: the ranks in order, three or more consecutive ones as a range, and how many are left out
    """
    known = sorted(set(ranks))
    parts = [part for first, last in _runs(known) for part in _parts(first, last)]
    left = len(known) - sum(count for _, count in parts[:MOST_RANKS])
    shown = ", ".join(text for text, _ in parts[:MOST_RANKS]) + (f" and {left} more" if left else "")
    return f"rank{'s' if len(known) > 1 else ''} {shown}"


def _parts(first: int, last: int) -> list[tuple[str, int]]:
    """A run as text, and how many ranks each part of the text names: two ranks are no range."""
    count = last - first + 1
    return [(f"{first}-{last}", count)] if count > 2 else [(str(n), 1) for n in range(first, last + 1)]


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers in a sorted list."""
    known = set(numbers)
    starts = [n for n in numbers if n - 1 not in known]
    ends = [n for n in numbers if n + 1 not in known]
    return list(zip(starts, ends, strict=True))


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as the kernel writes a list of CPUs: `0-3,8`."""
    runs = _runs(sorted(set(numbers)))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_ranges(text: str) -> list[int]:
    """Read the numbers of a text such as `0-3,8`, see `ranges`."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def listed(names: Iterable[object], most: int = 8) -> str:
    """Enumerate the first names, each once, and count the rest: `h1, h2 and 62 more`.

    :param most: how many names to write out
    """
    shown = [str(name) for name in dict.fromkeys(names)]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def capitalized(sentence: str) -> str:
    """Begin a sentence with a capital letter, and leave the rest of it as it is."""
    return sentence[:1].upper() + sentence[1:]


def call_site() -> str:
    """Say which lines of the program are executed: `step (train.py:17), main (train.py:40)`, the innermost first.

    :returns: lines of installed packages only where there are no others; "" where there are none
    """
    found: list[str] = []
    installed: list[str] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and len(found) < MOST_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith((_OWN, "<frozen")):
            text = f"{code.co_name} ({_short(code.co_filename)}:{frame.f_lineno})"
            (installed if code.co_filename.startswith(_INSTALLED) else found).append(text)
        frame = frame.f_back
    return ", ".join(found or installed[:MOST_FRAMES])


def _short(path: str) -> str:
    """A file below the working folder, else its name and that of its folder."""
    parts = path.split("/")
    inside = os.path.relpath(path) if path.startswith(os.getcwd() + "/") else "/".join(parts[-2:])
    return inside if len(inside) < len(path) else path


def byte_size(count: float) -> str:
    """Write a number of bytes with a unit of 1024s: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 1000 else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
