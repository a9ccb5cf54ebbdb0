# SPDX-License-Identifier: Apache-2.0
"""The one shape of everything that is found, and the ranks that it is found among."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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
