# SPDX-License-Identifier: Apache-2.0
"""The cheap checks that every `hpccoll.init()` does; they say only what is wrong (knob HPCCOLL_CHECK)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpccoll import config
from hpccoll.checks import memory, names, placement
from hpccoll.checks.finding import ERROR, Facts, grouped
from hpccoll.checks.survey import RankReport, Survey


def collect() -> dict[str, Facts]:
    """The facts of this rank; a handful of files."""
    return {
        placement.NAME: placement.collect(config.environment()),
        memory.NAME: memory.collect(),
        names.NAME: names.collect(),
    }


def lines(machines: Sequence[Any], facts: Sequence[dict[str, Facts]]) -> list[str]:
    """What is wrong, one line a finding.

    :param machines: equal for ranks that share memory, by rank
    :param facts: what `collect` gave on each rank
    """
    survey = Survey(
        [
            RankReport(rank, seen[names.NAME]["host"], str(machine), seen)
            for rank, (machine, seen) in enumerate(zip(machines, facts, strict=True))
        ]
    )
    found = [*placement.judge_at_start(survey), *memory.judge(survey), *names.judge(survey)]
    return [
        finding.line() for finding in grouped(found) if finding.severity != ERROR
    ]  # an error is raised by who meets it
