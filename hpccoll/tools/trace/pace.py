# SPDX-License-Identifier: Apache-2.0
"""Slow ranks, which make their requests later than the others."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hpccoll.tools.trace.story import Story, seconds

__all__ = ["explain"]

FEWEST = 5
"""Operations that must have been seen on all ranks."""
LATE = 5e6
"""Nanoseconds behind the first rank that count."""


def explain(stories: dict[int, Story]) -> Iterator[str]:
    """Name the ranks whose requests usually come last.

    :param stories: by rank
    """
    lags = _lags(stories)
    if not lags:
        return
    typical = median(median(of_rank) for of_rank in lags.values())
    for rank, of_rank in lags.items():
        lag = median(of_rank)
        if lag > LATE and lag > 3 * typical:
            yield (
                f"Rank {rank} is slow: it asked for the last {len(of_rank)} operations {seconds(lag)} after the first "
                f"rank that asked (median); half of the ranks ask within {seconds(typical)}. The others wait for it."
            )


def _lags(stories: dict[int, Story]) -> dict[int, list[float]]:
    """Return, by rank, the delays of its requests after the first rank, for each operation of all ranks."""
    asked: dict[tuple[int, str, int], dict[int, int]] = {}
    for rank, story in stories.items():
        for request in story.requests:
            if request.asked and request.status == "OK" and request.is_agreed and request.set == 0:
                key = (request.set, request.key, request.position)
                asked.setdefault(key, {})[rank] = request.asked + story.recording.clock
    common = [times for times in asked.values() if len(times) == len(stories)]
    if len(common) < FEWEST or len(stories) < 2:
        return {}
    return {rank: [float(times[rank] - min(times.values())) for times in common] for rank in stories}
