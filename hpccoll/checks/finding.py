# SPDX-License-Identifier: Apache-2.0
"""The one shape of everything that is found, and the ranks that it is found among."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

Facts = dict[str, Any]

ERROR, WARNING, NOTE = "error", "warning", "note"
"""It cannot work; it will be slow or fail later; worth knowing."""


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    severity: str
    seen: str
    """What was seen and where: hosts, ranks, values."""
    matters: str
    """Why that matters."""
    remedy: str
    """What to do."""

    def line(self) -> str:
        """The finding on one line."""
        return f"{self.seen}: {self.matters}. {self.remedy}"


@dataclass(frozen=True)
class Card:
    """What one rank knows of itself."""

    rank: int
    host: str
    node: str
    """Equal on ranks that share memory and network interfaces."""
    facts: dict[str, Facts]
    """By name of the check that collected them."""


@dataclass(frozen=True)
class Job:
    """The cards of all ranks that could be asked, in order, and what was measured between them."""

    cards: list[Card]
    size: int = 0
    """How many ranks the launcher started; 0: as many as there are cards."""
    reached: list[Facts] = field(default_factory=list)
    links: list[Facts] = field(default_factory=list)
    inside: list[Facts] = field(default_factory=list)

    @cached_property
    def nodes(self) -> dict[str, list[Card]]:
        """The cards of each node, in order of its first rank."""
        nodes: dict[str, list[Card]] = {}
        for card in self.cards:
            nodes.setdefault(card.node, []).append(card)
        return nodes

    @cached_property
    def leaders(self) -> list[Card]:
        """The first card of each node."""
        return [cards[0] for cards in self.nodes.values()]


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that differ only in where they were seen become one: a job may have thousands of nodes."""
    same: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        same.setdefault((finding.check, finding.severity, finding.matters, finding.remedy), []).append(
            finding
        )
    merged = []
    for alike in same.values():
        first, more = alike[0], len(alike) - 3
        seen = "; ".join(finding.seen for finding in alike[:3]) + (
            f"; and {more} more like these" if more > 0 else ""
        )
        merged.append(replace(first, seen=seen))
    return merged


def some(names: Iterable[object], most: int = 8) -> str:
    """Enumerate a few of them and count the rest: `h1, h2 and 62 more`."""
    shown = [str(name) for name in dict.fromkeys(names)]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def ranks(numbers: Iterable[int]) -> str:
    """Write ranks as ranges: `rank 3`, `ranks 0-3, 8`."""
    listed = sorted(set(numbers))
    return f"rank{'s' if len(listed) > 1 else ''} {ranges(listed)}"


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as the kernel does: `0-3,8`."""
    listed = sorted(set(numbers))
    starts = [n for n in listed if n - 1 not in set(listed)]
    ends = [n for n in listed if n + 1 not in set(listed)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def numbers(text: str) -> list[int]:
    """Read what `ranges` writes."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def size(count: float) -> str:
    """Write bytes with a unit of 1024s."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
