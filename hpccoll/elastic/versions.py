# SPDX-License-Identifier: Apache-2.0
"""Chooses the commit from which the ranks continue: a function of all ranks' reports, the same on every rank.

It needs no World and no state, so tests/elastic/test_membership.py runs it in simulated jobs, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["NONE", "Commit", "Report", "Version", "common", "newest", "no_common"]

Version = tuple[int, int]
"""The generation that made a commit, and its number from 1. (0, 0): there is none."""
NONE: Version = (0, 0)


@dataclass(frozen=True)
class Commit:
    """A commit that a rank holds."""

    version: Version = NONE
    rank: int = -1
    """The number that the rank had when it made the commit."""
    size: int = 0
    """The number of ranks at that time."""


@dataclass(frozen=True)
class Report:
    """The report of one rank to the others."""

    last: Commit = Commit()
    older: Commit = Commit()
    """The commit before the last one, if the rank keeps two."""
    since: int = 0
    """The first generation in which the rank has taken the state; 0: it has not taken it."""

    def held(self) -> Iterator[Commit]:
        """Yield the commits of the rank, the newer one first."""
        yield from (commit for commit in (self.last, self.older) if commit.version != NONE)

    def find(self, version: Version) -> Commit | None:
        """Return the commit of this version, if the rank holds it."""
        return next((commit for commit in self.held() if commit.version == version), None)

    def row(self) -> list[int]:
        """Write it as numbers."""
        commits = [[*commit.version, commit.rank, commit.size] for commit in (self.last, self.older)]
        return [*commits[0], *commits[1], self.since]

    @classmethod
    def of(cls, row: Sequence[int]) -> Report:
        """Read it from numbers."""
        first, second = (Commit((row[at], row[at + 1]), row[at + 2], row[at + 3]) for at in (0, 4))
        return cls(first, second, row[8])


def newest(reports: Sequence[Report]) -> Version:
    """Choose for a state that is equal on all ranks: the newest commit of any rank.

    :returns: its version; NONE: no rank has committed
    """
    return max(report.last.version for report in reports)


def common(reports: Sequence[Report]) -> Version | None:
    """Choose for a state that differs between ranks: the newest commit that all its participants hold.

    A rank took part in a commit if it has had the state since the commit's generation, or longer.

    :returns: its version; NONE: no rank has committed; None: there is no such commit
    """
    held = sorted({commit.version for report in reports for commit in report.held()}, reverse=True)
    for version in held:
        parts = [report for report in reports if 0 < report.since <= version[0] or report.find(version)]
        if all(report.find(version) for report in parts):
            return version
    return None if held else NONE


def no_common(reports: Sequence[Report]) -> str:
    """Say what the ranks hold if common() finds nothing."""
    held = "; ".join(
        f"rank {rank}: {' and '.join(str(commit.version) for commit in report.held()) or 'none'}"
        for rank, report in enumerate(reports)
    )
    return (
        f"the ranks have no commit in common (generation, number): {held}. Each step must hold an operation of all "
        "ranks, so that no rank is further than one commit ahead of another one"
    )
