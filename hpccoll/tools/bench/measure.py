# SPDX-License-Identifier: Apache-2.0
"""Times calls in turn until their medians are accurate enough.

A sample is one call, or as many as fill a millisecond; the ranks start it together after a barrier, and its time is the
slowest rank's. Before each call the ranks write their inputs, as a program does that computes them, and this time does
not count. The contestants take turns after every few samples, a batch, so that disturbances of the machine affect all
of them alike. A batch during which the cores came nearer to each other or farther apart is left out.
"""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hpccoll.tools.bench import clocks, statistics
from hpccoll.tools.bench.distance import Distances
from hpccoll.tools.bench.ranks import Ranks
from hpccoll.tools.bench.results import Facts

BLOCK = 5
"""Samples of a batch, after which it is the next contestant's turn."""
TRIES = 10
"""Trial calls; the fastest estimates the time of a call, because on a loaded machine most calls wait for a core."""
TRIED = 0.2
"""Seconds of trial calls after which they end: one long call fills a sample alone."""
FILL, MOST_CALLS = 1e-3, 1000
"""Seconds that the calls of a sample take together, and the largest number of calls."""
MOST_MOVED = 10
"""Batches that may be left out beside as many as were kept: where the cores never rest, the rest is kept and marked."""
MEAN, NEAREST, FARTHEST = "mean of ranks", "nearest cores", "farthest cores"
"""Parts of a case beside its samples: the mean of the ranks' times, and the latency of a cache line between cores."""
Call = Callable[[], object]
Seconds = NDArray[np.float64]


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
    fresh: bool = True
    """Whether the ranks write their inputs before each call."""
    synchronise: str = "barrier"
    """How the ranks start a sample together: after a barrier, or at an agreed time of synchronised clocks."""


@dataclass
class Timed:
    """The samples of one contestant, equal on all ranks."""

    call: Call
    write: Call | None = None
    """Writes this rank's input before a call; None: the input stays."""
    samples: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=lambda: {MEAN: [], NEAREST: [], FARTHEST: []})
    calls: int = 1
    ended: str = ""
    """`narrow` or `limit` when it has ended."""
    facts: Facts = field(default_factory=dict)
    """The quality of the synchronised clocks, the distance of the cores, and what was left out."""
    spent: float = 0.0
    """Seconds of all batches."""
    kept: int = 0
    left_out: int = 0
    marked: int = 0
    """Batches that were kept; left out, or kept and marked, because the cores moved meanwhile."""
    names: dict[str, None] = field(default_factory=dict)

    def add(self, slowest: Sequence[float], means: Sequence[float], distances: Distances) -> None:
        """Take in a batch; leave it out if the cores have moved."""
        self.spent += sum(slowest) * self.calls
        moved = distances.moved()
        if moved and self.left_out < MOST_MOVED + self.kept:
            self.left_out += 1
            return
        self.kept, self.marked = self.kept + 1, self.marked + moved
        near, far = distances.ends()
        self.names |= dict.fromkeys(distances.names)
        self.samples += slowest
        for name, values in ((MEAN, means), (NEAREST, [near] * len(slowest)), (FARTHEST, [far] * len(slowest))):
            self.parts[name] += values

    def judge(self, limits: Limits) -> None:
        """End if the interval is narrow enough, or at a limit."""
        count = len(self.samples)
        if count >= limits.least and statistics.median(self.samples).width <= limits.width:
            self.ended = "narrow"
        elif count >= limits.most or (count >= limits.least and self.spent >= limits.seconds):
            self.ended = "limit"

    def described(self, limits: Limits) -> Facts:
        """Return the facts of a case."""
        return {
            **self.facts,
            "ended": self.ended,
            "warm-up calls": limits.warmup,
            "inputs": "written before each call" if self.write else "kept",
            "distance": list(self.names),
            "batches left out": self.left_out,
            "batches marked": self.marked,
        }

    def arrays(self) -> dict[str, Seconds]:
        """Return the parts of a case; those that were not measured are left out."""
        found = {name: np.array(values) for name, values in self.parts.items()}
        return {name: values for name, values in found.items() if name == MEAN or values.any()}


def in_turn(calls: Sequence[Call], ranks: Ranks, limits: Limits, writes: Sequence[Call | None] = ()) -> list[Timed]:
    """Time several calls in turn; all ranks do so together and get the same samples.

    :param writes: for each call a function that writes its input, or None
    """
    timed = [Timed(call, write) for call, write in zip(calls, writes or [None] * len(calls), strict=True)]
    for contestant in timed:
        _warm_up(contestant, ranks, limits)
    clock = clocks.Clock(ranks) if limits.synchronise == clocks.NAME else None
    first = 0
    with contextlib.closing(Distances(ranks)) as distances:
        while active := [contestant for contestant in timed if not contestant.ended]:
            for contestant in active[first % len(active) :] + active[: first % len(active)]:
                batch = _batch_by_clock(contestant, clock) if clock else _batch(contestant, ranks)
                contestant.add(*batch, distances)
                contestant.judge(limits)
            first += 1  # no contestant always follows the same one
    facts = clock.facts() if clock else {}
    for contestant in timed:
        contestant.facts = facts
    return timed


def _warm_up(contestant: Timed, ranks: Ranks, limits: Limits) -> None:
    """Call a few times, and compute how many calls a sample needs."""
    for _ in range(limits.warmup):
        _once(contestant)
    slowest, tried, once = math.inf, 0.0, math.inf
    for _ in range(TRIES):
        ranks.barrier()
        took = _once(contestant)
        once, tried = min(once, took), tried + took
        slowest, longest = ranks.slowest(np.array([once, tried]))
        if longest > TRIED:
            break
    if contestant.write is None or limits.synchronise != clocks.NAME:  # by clocks, the input is written before a start
        contestant.calls = max(1, min(MOST_CALLS, int(FILL / max(slowest, 1e-7))))


def _once(contestant: Timed) -> float:
    """Write the input, and return the seconds of one call."""
    if contestant.write is not None:
        contestant.write()
    began = time.perf_counter()
    contestant.call()
    return time.perf_counter() - began


def _batch_by_clock(contestant: Timed, clock: clocks.Clock) -> tuple[list[float], list[float]]:
    """Take a few samples, from the agreed start to the end on the last rank; none if a rank was late for the start."""
    slowest, own, call, calls = list[float](), list[float](), contestant.call, range(contestant.calls)
    for _ in range(BLOCK):
        if contestant.write is not None:
            contestant.write()
        moment, late = clock.start()
        for _ in calls:
            call()
        took = clock.now() - moment
        if (seconds := clock.ended(moment, late)) is not None:
            slowest.append(seconds / len(calls))
            own.append(took / len(calls))
    return slowest, clock.ranks.mean(np.array(own)).tolist() if own else []


def _batch(contestant: Timed, ranks: Ranks) -> tuple[list[float], list[float]]:
    """Return a few samples, in seconds of one call: those of the slowest rank, and the mean of all ranks."""
    seconds = np.empty(BLOCK)
    for i in range(BLOCK):
        ranks.barrier()
        seconds[i] = sample(contestant.call, contestant.write, contestant.calls)
    return ranks.slowest(seconds).tolist(), ranks.mean(seconds).tolist()


def sample(call: Call, write: Call | None, calls: int) -> float:
    """Return the seconds of one call: the mean of several, without the time in which inputs are written."""
    clock = time.perf_counter
    if write is None:
        began = clock()
        for _ in range(calls):
            call()
        return (clock() - began) / calls
    total = 0.0
    for _ in range(calls):
        write()
        began = clock()
        call()
        total += clock() - began
    return total / calls
