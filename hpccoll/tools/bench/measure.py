# SPDX-License-Identifier: Apache-2.0
"""Times calls in turn until their medians are accurate enough.

A sample is one call, or as many as fill a millisecond, between two readings of each rank's clock; the ranks start it
together after a barrier, and its time is the slowest rank's. The contestants take turns after every few samples, so
that disturbances of the machine affect all of them alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpccoll.tools.bench import clocks, statistics
from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import Facts

BLOCK = 5
"""Samples before the next contestant's turn."""
TRIES = 10
"""Trial calls; the fastest estimates the time of a call, because on a loaded machine most calls wait for a core."""
TRIED = 0.2
"""Seconds of trial calls after which they end: one long call fills a sample alone."""
FILL, MOST_CALLS = 1e-3, 1000
"""Seconds that the calls of a sample take together, and the largest number of calls."""


@dataclass(frozen=True)
class Limits:
    """The limits of the repetitions of a case."""

    width: float = 0.02
    """Half of the interval of the median, as a share of the median."""
    seconds: float = 1.0
    """The time of a case and contestant after which it ends with a wider interval."""
    most: int = 1000
    """Samples at most."""
    least: int = 10
    """Samples at least."""
    warmup: int = 5
    """Calls before the first sample."""
    synchronise: str = "barrier"
    """How the ranks start a sample together: after a barrier, or at an agreed time of synchronised clocks."""


@dataclass
class Timed:
    """The samples of one contestant, equal on all ranks."""

    call: Callable[[], object]
    samples: list[float] = field(default_factory=list)
    calls: int = 1
    ended: str = ""
    """`narrow` or `limit` when it has ended."""
    facts: Facts = field(default_factory=dict)
    """The quality of the synchronised clocks."""

    def judge(self, limits: Limits) -> None:
        """End if the interval is narrow enough, or at a limit."""
        count = len(self.samples)
        if count >= limits.least and statistics.median(self.samples).width <= limits.width:
            self.ended = "narrow"
        elif count >= limits.most or (count >= limits.least and sum(self.samples) * self.calls >= limits.seconds):
            self.ended = "limit"


def in_turn(calls: Sequence[Callable[[], object]], ranks: Ranks, limits: Limits) -> list[Timed]:
    """Time several calls in turn; all ranks do so together and get the same samples."""
    timed = [Timed(call) for call in calls]
    for contestant in timed:
        _warm_up(contestant, ranks, limits.warmup)
    clock = clocks.Clock(ranks) if limits.synchronise == clocks.NAME else None
    first = 0
    while active := [contestant for contestant in timed if not contestant.ended]:
        for contestant in active[first % len(active) :] + active[: first % len(active)]:
            contestant.samples += _block_by_clock(contestant, clock) if clock else _block(contestant, ranks)
            contestant.judge(limits)
        first += 1  # no contestant always follows the same one
    facts = clock.facts() if clock else {}
    for contestant in timed:
        contestant.facts = facts
    return timed


def _warm_up(contestant: Timed, ranks: Ranks, calls: int) -> None:
    """Call a few times, and compute how many calls a sample needs."""
    for _ in range(calls):
        contestant.call()
    slowest, tried, once = math.inf, 0.0, math.inf
    for _ in range(TRIES):
        ranks.barrier()
        began = time.perf_counter()
        contestant.call()
        took = time.perf_counter() - began
        once, tried = min(once, took), tried + took
        slowest, longest = ranks.slowest(np.array([once, tried]))
        if longest > TRIED:
            break
    contestant.calls = max(1, min(MOST_CALLS, int(FILL / max(slowest, 1e-7))))


def _block_by_clock(contestant: Timed, clock: clocks.Clock) -> list[float]:
    """Take a few samples, from the agreed start to the end on the last rank; none if a rank was late for the start."""
    found, call, calls = [], contestant.call, range(contestant.calls)
    for _ in range(BLOCK):
        moment, late = clock.start()
        for _ in calls:
            call()
        if (seconds := clock.ended(moment, late)) is not None:
            found.append(seconds / len(calls))
    return found


def _block(contestant: Timed, ranks: Ranks) -> list[float]:
    """Return a few samples: seconds of one call."""
    seconds, call, calls = np.empty(BLOCK), contestant.call, range(contestant.calls)
    for i in range(BLOCK):
        ranks.barrier()
        began = time.perf_counter()
        for _ in calls:
            call()
        seconds[i] = (time.perf_counter() - began) / len(calls)
    slowest: list[float] = ranks.slowest(seconds).tolist()
    return slowest
