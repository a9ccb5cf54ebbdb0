# SPDX-License-Identifier: Apache-2.0
"""The distances of the ranks' cores: who measures with whom, what is said of the latencies, and what is a finding."""

from itertools import combinations
from typing import Any

import pytest
from reports import report

from hpccoll.checks.survey import RankReport, Survey
from hpccoll.tools.doctor import distances, rendering

NEAR, FAR, SOCKET = 25e-9, 110e-9, 210e-9
"""Seconds, as published for a Zen 3 of two sockets."""


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 129])
def test_everybody_meets_everybody_once(count: int) -> None:
    partners = distances.rounds(count)
    assert all(
        sorted(others) == [other for other in range(count) if other != place] for place, others in enumerate(partners)
    )
    turns = max(count + count % 2 - 1, 0)
    free = {place: iter(others) for place, others in enumerate(partners)}
    waiting = {place: next(others, None) for place, others in free.items()}
    for _ in range(turns):  # each round: the pairs that name each other
        pairs = {(a, b) for a, b in waiting.items() if b is not None and a < b and waiting[b] == a}
        assert len(pairs) == count // 2
        for place in (place for pair in pairs for place in pair):
            waiting[place] = next(free[place], None)
    assert set(waiting.values()) <= {None}


def latencies(count: int, cache: int, socket: int) -> list[list[float]]:
    """The matrix of ranks that are bound in order to L3 caches of `cache` cores and sockets of `socket`."""

    def of(a: int, b: int) -> float:
        return NEAR if a // cache == b // cache else FAR if a // socket == b // socket else SOCKET

    return [[0.0 if a == b else of(a, b) for b in range(count)] for a in range(count)]


def test_a_node_is_described_by_its_groups() -> None:
    facts = distances.describe([report(rank) for rank in range(32)], latencies(32, 8, 16))
    assert [kind["seconds"] for kind in facts["classes"]] == [NEAR, FAR, SOCKET]
    assert [len(kind["groups"]) for kind in facts["classes"]] == [4, 2, 1] and facts["latencies"] == []
    text = rendering._distances([facts])
    assert text.splitlines()[1:] == [
        "25 and more: ranks 0-7; ranks 8-15; ranks 16-23; ranks 24-31",
        "110 and more: ranks 0-15; ranks 16-31",
        "210 and more: ranks 0-31",
    ]


def test_pairs_that_never_met_are_no_distance() -> None:
    facts = distances.describe([report(0), report(1)], [[0.0, 0.0], [0.0, 0.0]])
    assert facts["classes"] == [] and "rank  0  1\n0     -  -\n1     -  -" in rendering._distances([facts])


def test_a_small_node_is_a_matrix_and_an_unknown_pair_a_dash() -> None:
    known = latencies(3, 2, 4)
    known[0][2] = known[2][0] = 0.0
    known[1][2] = known[2][1] = 1e-4  # turns of the scheduler
    text = rendering._distances([distances.describe([report(rank) for rank in range(3)], known)] * 6)
    assert "\n0     -   25     -\n1     25  -      turns\n2     -   turns  -\n" in text and text.endswith(
        "... and 2 more nodes"
    )


def bound(caches: list[int], cores: int = 8, virtual: bool = False) -> list[RankReport]:
    """Reports of ranks of one core each, below the L3 caches of these numbers; two caches make a socket."""
    alone = {"cores": 1}
    return [
        RankReport(
            rank, "h1", "node0", report(rank, placement=alone).facts | {distances.NAME: facts(cache, cores, virtual)}
        )
        for rank, cache in enumerate(caches)
    ]


def facts(cache: int, cores: int, virtual: bool) -> dict[str, Any]:
    cpus = f"{cores * cache}-{cores * cache + cores - 1}"
    return {"virtual": virtual, "caches": [{"cpus": cpus, "cores": cores, "socket": str(cache // 2)}]}


@pytest.mark.parametrize(
    ("caches", "found"),
    [
        ([0, 0, 0, 0], ""),  # as near as can be
        ([0, 1, 2, 3], "4 cores below 4 L3 caches of 2 sockets, of which one has 8 cores"),
        ([0, 1], "2 cores below 2 L3 caches, of which one has 8 cores"),
        ([0] * 8 + [1] * 8, ""),  # one cache has no room for 16
    ],
)
def test_a_small_job_that_is_spread_is_a_finding(caches: list[int], found: str) -> None:
    findings = distances.judge(Survey(bound(caches)))
    assert len(findings) == bool(found) and all(found in finding.seen for finding in findings), findings


def test_a_virtual_machine_is_judged_by_what_was_measured() -> None:
    """Two distances are one finding, one is none, and the caches that it shows do not matter."""
    reports = bound([0, 1, 2, 3], virtual=True)
    for cache, found in ((2, 1), (4, 0)):
        survey = Survey(reports, distances=[distances.describe(reports, latencies(4, cache, 4))])
        findings = distances.judge(survey)
        assert len(findings) == found and all("25 ns" in f.seen and "110 between" in f.seen for f in findings)


def test_ranks_in_a_chain_are_one_group() -> None:
    assert distances.joined(5, [(3, 4), (0, 1), (1, 3)]) == [[0, 1, 3, 4], [2]]
    assert distances.joined(3, list(combinations(range(3), 2))) == [[0, 1, 2]] and distances.joined(0, []) == []
