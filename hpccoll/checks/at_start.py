# SPDX-License-Identifier: Apache-2.0
"""The cheap checks of every `hpccoll.init()`; they print only what is wrong (knob HPCCOLL_CHECK)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpccoll import config
from hpccoll.checks import memory, names, placement
from hpccoll.checks.finding import ERROR, Facts, grouped
from hpccoll.checks.survey import RankReport, Survey


def collect() -> dict[str, Facts]:
    """Collect the facts of this rank from a handful of files.

    :returns: the facts of each check, by the check's name
    """
    return {
        placement.NAME: placement.collect(config.environment()),
        memory.NAME: memory.collect(),
        names.NAME: names.collect(),
    }


def lines(machines: Sequence[Any], facts: Sequence[dict[str, Facts]]) -> list[str]:
    """Judge the facts of all ranks.

    :param machines: a value per rank, equal on ranks that share memory
    :param facts: what `collect` returned on each rank
    :returns: one line per finding; errors are left out, as the step that fails raises them itself
    """
    survey = Survey(
        [
            RankReport(rank, seen[names.NAME]["host"], str(machine), seen)
            for rank, (machine, seen) in enumerate(zip(machines, facts, strict=True))
        ]
    )
    found = [*placement.judge_at_start(survey), *memory.judge(survey), *names.judge(survey)]
    return [finding.line() for finding in grouped(found) if finding.severity != ERROR]
