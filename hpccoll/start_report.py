# SPDX-License-Identifier: Apache-2.0
"""What a rank tells the others before there is a World, and how it travels."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from hpccoll import config, errors
from hpccoll.checks import proofs
from hpccoll.checks.finding import Facts
from hpccoll.rendezvous import Machine

__all__ = ["StartReport", "read"]

NONCE = re.compile(r"[0-9a-f]{16}")


@dataclasses.dataclass(frozen=True)
class StartReport:
    """The report of one rank."""

    settings: config.Config
    machine: Machine
    host: str
    pid: int
    nonce: str
    """A word that no other World has, for names of shared memory: rank 0's counts."""
    facts: dict[str, Facts]
    """The facts for the checks at the start, by name of the check; empty where the checks are switched off."""
    uses_gpu: bool
    proofs: tuple[list[proofs.Proof], str]
    """Whether MPI may be given the memory of GPUs. Rank 0 reads this for all."""

    def values(self) -> dict[str, Any]:
        """Give the report as values that JSON can hold."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found, wrong = self.proofs
        return values | {
            "settings": dataclasses.asdict(self.settings),
            "proofs": [[dataclasses.asdict(proof) for proof in found], wrong],
        }


def read(values: list[dict[str, Any]]) -> list[StartReport]:
    """Read what StartReport.values() gave on each rank.

    :raises StartError: a rank sent something else
    """
    reports = []
    for rank, sent in enumerate(values):
        try:
            reports.append(_report(sent))
        except (errors.InvalidArgumentError, KeyError, TypeError, ValueError) as error:
            raise errors.StartError(
                f"the World was not made: the report of rank {rank} cannot be read: {type(error).__name__}: {error}"
            ) from None
    return reports


def _report(sent: dict[str, Any]) -> StartReport:
    found, wrong = sent["proofs"]
    report = StartReport(
        **sent
        | {
            "settings": config.from_values(sent["settings"]),
            "proofs": ([proofs.from_values(proof) for proof in found], wrong),
        }
    )
    kinds: dict[str, Any] = {
        "machine": (int, str),
        "host": str,
        "pid": int,
        "nonce": str,
        "facts": dict,
        "uses_gpu": bool,
    }
    for name, kind in kinds.items():
        if not isinstance(getattr(report, name), kind):
            raise TypeError(f"{name} is {getattr(report, name)!r}")
    if not 0 < report.pid < 1 << 31:
        raise ValueError(f"pid is {report.pid!r}")
    if not NONCE.fullmatch(report.nonce):
        raise ValueError(f"nonce is {report.nonce!r}")
    return report
