# SPDX-License-Identifier: Apache-2.0
"""A finding: the result of a check."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

Facts = dict[str, Any]

ERROR, WARNING, NOTE = "error", "warning", "note"
"""Severities: the job cannot work; it will be slow or fail later; worth knowing."""


@dataclass(frozen=True)
class Finding:
    """One result of a check, in words for a user."""

    check: str
    severity: str
    seen: str
    """The observation: hosts, ranks, values."""
    matters: str
    """The reason why it matters."""
    remedy: str
    """The remedy: commands, options, settings."""

    def line(self) -> str:
        """Write the finding on one line."""
        return f"{self.seen}: {self.matters}. {self.remedy}"


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings that differ only in `seen`, because a job may have thousands of nodes.

    :returns: the findings in their first order; a merged one shows three observations and counts the rest
    """
    same: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        same.setdefault((finding.check, finding.severity, finding.matters, finding.remedy), []).append(finding)
    merged = []
    for alike in same.values():
        first, more = alike[0], len(alike) - 3
        seen = "; ".join(finding.seen for finding in alike[:3]) + (f"; and {more} more like these" if more > 0 else "")
        merged.append(replace(first, seen=seen))
    return merged
