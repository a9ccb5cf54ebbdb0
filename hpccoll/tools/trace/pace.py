# SPDX-License-Identifier: Apache-2.0
"""Slow ranks, which make their requests later than the others."""

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
    lags, early = _lags(stories)
    if not lags:
        return
    apart = max(map(median, early.values()))
    if apart > LATE:
        yield (
            f"The clocks of the hosts differ by {seconds(apart)} or more: by them, operations that all ranks agree on "
            "ended on a rank before another one asked for them. So times of different hosts do not compare, and which "
            "rank is slow cannot be told."
        )
        return
    typical = median(median(of_rank) for of_rank in lags.values())
    for rank, of_rank in lags.items():
        lag = median(of_rank)
        if lag > LATE and lag > 3 * typical:
            yield (
                f"Rank {rank} is slow: it asked for the last {len(of_rank)} operations {seconds(lag)} after the first "
                f"rank that asked (median); half of the ranks ask within {seconds(typical)}. The others wait for it."
            )


def _lags(stories: dict[int, Story]) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Return, by rank, the delays of its requests after the first rank, for each operation of all ranks.

    Requests without a position in the log, which the ranks have counted, cannot be told from others of their name.
    The second value has the times from the first end of the operation on any rank to this rank's request. By true
    clocks none is above 0, because no operation ends before all ranks have asked for it.
    """
    asked: dict[tuple[int, str, int], dict[int, int]] = {}
    ended: dict[tuple[int, str, int], dict[int, int]] = {}
    for rank, story in stories.items():
        for request in story.requests:
            if request.asked and request.position and request.status == "OK" and request.is_agreed and not request.set:
                key = (request.set, request.key, request.position)
                asked.setdefault(key, {})[rank] = request.asked + story.recording.clock
                ended.setdefault(key, {})[rank] = request.ended + story.recording.clock
    common = [key for key, times in asked.items() if len(times) == len(stories)]
    if len(common) < FEWEST or len(stories) < 2:
        return {}, {}
    lags = {rank: [float(asked[key][rank] - min(asked[key].values())) for key in common] for rank in stories}
    early = {rank: [float(asked[key][rank] - min(ended[key].values())) for key in common] for rank in stories}
    return lags, early
