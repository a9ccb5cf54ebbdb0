# SPDX-License-Identifier: Apache-2.0
"""Who is measured with whom and when: pure functions of the number of nodes and of what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from hpccoll.checks.finding import Facts

Pair = tuple[int, int]
SLOW = 0.6
"""A link below this share of the good ones is suspect."""
LATE, LATE_SECONDS = 3.0, 20e-6
"""A link of this many times the good ones' latency and so much more is suspect."""
MOST_SUSPECTS = 8


def rounds(nodes: int) -> list[list[Pair]]:
    """About log2(nodes) rounds in each of which a node has one partner, so that no two pairs share a node.

    Rounds of a round-robin tournament (the circle method), spread evenly: with an even number of nodes a round
    leaves nobody out, with an odd number one.
    """
    if nodes < 2:
        return []
    seats = nodes + nodes % 2
    wanted = min(seats - 1, (nodes - 1).bit_length() + nodes % 2)
    return [_round(i * (seats - 1) // wanted, seats, nodes) for i in range(wanted)]


def _round(number: int, seats: int, nodes: int) -> list[Pair]:
    """Seats a and b meet in round (a + b) mod (seats - 1); who would meet itself meets the last seat."""
    pairs = set()
    for seat in range(seats - 1):
        other = (number - seat) % (seats - 1)
        other = seats - 1 if other == seat else other
        if max(seat, other) < nodes:
            pairs.add((min(seat, other), max(seat, other)))
    return sorted(pairs)


def bandwidth(link: Facts) -> float:
    """Bytes per second of the slower direction."""
    return float(min(link["bandwidth"]))


def best(links: Sequence[Facts]) -> dict[Pair, Facts]:
    """The best figures of each pair's measurements, as an idle link has only reasons to look slower."""
    found: dict[Pair, Facts] = {}
    for link in links:
        if "error" in link:
            continue
        pair = (link["nodes"][0], link["nodes"][1])
        so_far = found.setdefault(pair, link)
        rates = [max(both) for both in zip(so_far["bandwidth"], link["bandwidth"], strict=True)]
        found[pair] = so_far | {"bandwidth": rates, "latency": min(so_far["latency"], link["latency"])}
    return found


def reference(values: Sequence[float], rank: float) -> float:
    """The value at this rank of the sorted ones (0: smallest, 1: largest)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(rank * len(ordered)))]


def slow_pairs(links: Sequence[Facts]) -> list[Pair]:
    """Pairs well behind the better quarter of all; there is no telling from less than three pairs."""
    measured = best(links)
    if len(measured) < 3:
        return []
    good = reference([bandwidth(link) for link in measured.values()], 0.75)
    quick = reference([link["latency"] for link in measured.values()], 0.25)
    return sorted(
        pair
        for pair, link in measured.items()
        if bandwidth(link) < SLOW * good or link["latency"] > LATE * quick + LATE_SECONDS
    )


def again(slow: Sequence[Pair], nodes: int) -> list[Pair]:
    """What tells a slow link from a slow node: the pair alone, and each of its ends with a node beyond suspicion."""
    suspects = list(slow[:MOST_SUSPECTS])
    accused = {node for pair in slow for node in pair}
    beyond = [node for node in range(nodes) if node not in accused]
    pairs = suspects + [
        (min(end, other), max(end, other)) for pair in suspects for end in pair for other in beyond[:1]
    ]
    return list(dict.fromkeys(pairs))


def slow_nodes(links: Sequence[Facts]) -> list[int]:
    """Nodes all of whose links (two or more) are slow."""
    slow, measured = set(slow_pairs(links)), best(links)
    nodes = sorted({node for pair in measured for node in pair})
    found = []
    for node in nodes:
        own = [pair for pair in measured if node in pair]
        if len(own) >= 2 and slow.issuperset(own):
            found.append(node)
    return found
