# SPDX-License-Identifier: Apache-2.0
"""The distances of the ranks' cores on each node: the latency of a cache line between any two ranks.

Collectives inside a node take two to four times as long between cores that share no cache as between those that do.
"""

import math
import os
import time
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll import _fleet
from hpccoll.checks import placement
from hpccoll.checks.finding import NOTE, Facts, Finding
from hpccoll.checks.kernel_files import read_text
from hpccoll.checks.survey import RankReport, Survey
from hpccoll.text import parse_ranges, some_ranks
from hpccoll.tools.bench import distance
from hpccoll.tools.doctor.exchange import Exchange

NAME = "distances"
ATTEMPTS = 4
PATIENCE, LOOK = 2.0, 1e-4
"""Seconds for which ranks of a host wait for each other; seconds between two polls."""
MOST_IN_MATRIX = 16
"""The number of ranks of a node up to which the report has each pair."""
CPUS = Path("/sys/devices/system/cpu")


# ---- collecting -------------------------------------------------------------------------------------------


def collect() -> Facts:
    """List the L3 caches of the cpus that this rank may use: for each its cpus, the number of its cores, its socket."""
    caches: dict[str, Facts] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        shared = read_text(CPUS / f"cpu{cpu}/cache/index3/shared_cpu_list")
        if shared and shared not in caches:
            threads = {read_text(CPUS / f"cpu{n}/topology/thread_siblings_list") or n for n in parse_ranges(shared)}
            socket = read_text(CPUS / f"cpu{cpu}/topology/physical_package_id")
            caches[shared] = {"cpus": shared, "cores": len(threads), "socket": socket}
    return {"virtual": distance.is_virtual(), "caches": list(caches.values())}


def measure(exchange: Exchange, survey: Survey) -> list[Facts]:
    """Measure the latencies between all ranks of each node, on all nodes at once; all ranks call it together.

    :returns: for each node that has several ranks, and a core for each: its host, its ranks, `latencies` (a list per
        rank, seconds, 0 where a pair could not be measured; none for more than MOST_IN_MATRIX ranks), and `classes`:
        the smallest latency of each distance, and the groups of ranks that are no farther apart
    """
    mates = next((r for r in survey.nodes.values() if any(c.rank == exchange.rank for c in r)), [])
    if not 1 < len(mates) <= len(frozenset().union(*map(placement.cpus_of, mates))):
        mates = []  # ranks that share a core have no distance
    place = next((place for place, report in enumerate(mates) if report.rank == exchange.rank), 0)
    lines = Lines(exchange, [report.rank for report in mates], place)
    for attempt in range(ATTEMPTS):
        lines.measure(attempt)
    mine = describe(mates, lines.latencies()) if place == 0 and lines.shared else None
    found = [facts for facts in exchange.allgather(mine) if facts]
    lines.close()
    return found


class Lines:
    """Memory that the ranks of this host share: a cache line and a latency for each pair. All ranks make it together.

    Behind the latencies there is one number per rank: the last barrier that the rank has reached.

    :param mates: the ranks of this host; none: this rank measures nothing
    :param place: the place of this rank among them
    """

    def __init__(self, exchange: Exchange, mates: list[int], place: int) -> None:
        self.count, self.place = len(mates), place
        shared = distance.share_memory(
            exchange.allgather, mates, place, self._begin() + 8 * self.count * (self.count + 1)
        )
        there = exchange.allgather(shared is not None)
        self.shared = shared if mates and all(there[rank] for rank in mates) else None

    def measure(self, attempt: int) -> None:
        """Measure the pairs of this rank that have no latency yet; all ranks call it together.

        In each round a rank is in one pair, so that all pairs of a round are measured at once. A pair of which one rank
        comes too late has none.
        """
        if self.shared is None:
            return
        found = self._table()
        self._barrier(2 * attempt + 1)
        for partner in rounds(self.count)[self.place]:
            low, high = sorted((self.place, partner))
            if found[low, high] == 0:
                seconds = _fleet.bounce(self.shared, low * self.count + high, attempt + 1, low == self.place)
                if low == self.place:
                    found[low, high] = found[high, low] = seconds
        self._barrier(2 * attempt + 2)

    def _barrier(self, turn: int) -> None:
        """Wait for the other ranks of the host, up to a limit. After an exchange they would not start together."""
        turns, limit = self._numbers()[-self.count :], time.monotonic() + PATIENCE
        turns[self.place] = turn
        while (turns < turn).any() and time.monotonic() < limit:
            time.sleep(LOOK)

    def _begin(self) -> int:
        return self.count * self.count * _fleet.LINE_BYTES

    def _numbers(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        assert self.shared is not None
        return np.frombuffer(self.shared, np.float64, self.count * (self.count + 1), self._begin())

    def _table(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self._numbers()[: self.count**2].reshape(self.count, self.count)

    def latencies(self) -> list[list[float]]:
        """Return the latencies, a list per rank."""
        found: list[list[float]] = [] if self.shared is None else self._table().tolist()
        return found

    def close(self) -> None:
        """Free the memory."""
        if self.shared is not None:
            self.shared.close()


def rounds(count: int) -> list[list[int]]:
    """Pair each of `count` ranks with each other one, in rounds with at most one partner per rank (circle method).

    :returns: for each rank its partners, in the order of the rounds
    """
    even = count + count % 2
    found: list[list[int]] = [[] for _ in range(count)]
    for turn in range(even - 1):
        for place in range(count):
            partner = (turn - place) % (even - 1) if place < even - 1 else turn * (even // 2) % (even - 1)
            if partner == place:
                partner = even - 1
            if partner < count:
                found[place].append(partner)
    return found


def describe(reports: list[RankReport], latencies: list[list[float]]) -> Facts:
    """Describe the latencies of a node, see `measure`."""
    ranks = [report.rank for report in reports]
    pairs = list(combinations(range(len(ranks)), 2))
    smallest = distance.classes([latencies[a][b] for a, b in pairs])
    classes = []
    for seconds, above in pairwise([*smallest, math.inf]):
        near = [(a, b) for a, b in pairs if 0 < latencies[a][b] < above]
        groups = [[ranks[place] for place in group] for group in joined(len(ranks), near)]
        classes.append({"seconds": seconds, "groups": groups})
    matrix = latencies if len(ranks) <= MOST_IN_MATRIX else []
    return {"host": reports[0].host, "ranks": ranks, "latencies": matrix, "classes": classes}


def joined(count: int, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Return the groups of `count` that the pairs connect, each in order."""
    group = list(range(count))
    for a, b in pairs:
        if group[a] != group[b]:
            old, new = max(group[a], group[b]), min(group[a], group[b])
            group = [new if value == old else value for value in group]
    return [[place for place in range(count) if group[place] == first] for first in sorted(set(group))]


# ---- judging ----------------------------------------------------------------------------------------------


def judge(survey: Survey) -> list[Finding]:
    """Find ranks that are farther apart than they need to be."""
    found: list[Finding] = []
    for reports in survey.nodes.values():
        if len(reports) > 1 and all(report.facts.get(NAME, {}).get("caches") for report in reports):
            found += invented(reports, survey.distances) if reports[0].facts[NAME]["virtual"] else spread(reports)
    return found


def spread(reports: list[RankReport]) -> Iterator[Finding]:
    """Find ranks that are bound to several L3 caches although one has a core for each core of theirs."""
    caches = {cache["cpus"]: cache for report in reports for cache in report.facts[NAME]["caches"]}
    bound = all(len(report.facts[NAME]["caches"]) == 1 for report in reports)
    needed = sum(report.facts[placement.NAME].get("cores", 1) for report in reports)
    roomy = max(cache["cores"] for cache in caches.values())
    if not bound or len(caches) == 1 or needed > roomy:
        return
    sockets = len({cache["socket"] for cache in caches.values()})
    where = f"{len(caches)} L3 caches" + (f" of {sockets} sockets" if sockets > 1 else "")
    yield Finding(
        NAME,
        NOTE,
        f"{reports[0].host}: {some_ranks(report.rank for report in reports)} are bound to {needed} cores below "
        f"{where}, of which one has {roomy} cores",
        "a cache line takes several times as long between two L3 caches, and calls inside the node up to four times",
        "Bind them to cores that follow each other: `mpirun --map-by core --bind-to core`, or "
        "`srun --distribution=*:block --cpu-bind=cores`; unless the program needs the memory bandwidth of all of them",
    )


def invented(reports: list[RankReport], distances: list[Facts]) -> Iterator[Finding]:
    """Find ranks of a virtual machine whose measured distances differ, which no binding can change."""
    host, ranks = reports[0].host, [report.rank for report in reports]
    facts = next((facts for facts in distances if facts["host"] == host and facts["ranks"] == ranks), None)
    lines = [kind["seconds"] for kind in facts["classes"] if kind["seconds"] < distance.SCHEDULED] if facts else []
    if len(lines) > 1:
        yield Finding(
            NAME,
            NOTE,
            f"{host}: a cache line takes {1e9 * lines[0]:.0f} ns between some ranks and {1e9 * lines[-1]:.0f} between "
            "others; this is a virtual machine, whose caches are invented",
            "calls inside the node take up to four times as long between cores that are far apart, and the distances "
            "change when the machine's host moves its processors",
            "Nothing inside the machine helps; compare figures of equal distances only, as `hpccoll bench` does",
        )
