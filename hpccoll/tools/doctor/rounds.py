# SPDX-License-Identifier: Apache-2.0
"""The schedule of measurements: pure functions of the number of nodes and of the results so far."""

from collections.abc import Sequence

from hpccoll.checks.finding import Facts

Pair = tuple[int, int]
SLOW = 0.6
"""A link below this share of the good ones is suspect."""
LATE, LATE_SECONDS = 3.0, 20e-6
"""A link is suspect if its latency exceeds this multiple of a good link's latency plus these seconds."""
MOST_SUSPECTS = 8


def rounds(nodes: int) -> list[list[Pair]]:
    """Schedule about log2(nodes) rounds in which each node has one partner, so that no two pairs share a node.

    They are rounds of a round-robin tournament (the circle method), spread evenly. With an odd number of nodes, each
    round leaves one node out.
    """
    if nodes < 2:
        return []
    even = nodes + nodes % 2
    wanted = min(even - 1, (nodes - 1).bit_length() + nodes % 2)
    return [_round(i * (even - 1) // wanted, even, nodes) for i in range(wanted)]


def _round(number: int, even: int, nodes: int) -> list[Pair]:
    """Pair a and b with (a + b) mod (even - 1) = number; the one that would be paired with itself gets the last one."""
    pairs = set()
    for node in range(even - 1):
        other = (number - node) % (even - 1)
        other = even - 1 if other == node else other
        if max(node, other) < nodes:
            pairs.add((min(node, other), max(node, other)))
    return sorted(pairs)


def bandwidth(link: Facts) -> float:
    """Return the bandwidth of the slower direction, in bytes/s."""
    return float(min(link["bandwidth"]))


def best(links: Sequence[Facts]) -> dict[Pair, Facts]:
    """Combine the best figures of each pair's measurements, because load can only make a link look slower."""
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
    """Return a quantile of the values (0: smallest, 1: largest)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(rank * len(ordered)))]


def slow_pairs(links: Sequence[Facts]) -> list[Pair]:
    """Find the pairs well behind the better quarter of all pairs; fewer than three pairs cannot tell."""
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
    """Choose the pairs to measure again, alone, to tell a slow link from a slow node.

    :returns: each slow pair, and each of its nodes with a node that is in no slow pair
    """
    suspects = list(slow[:MOST_SUSPECTS])
    suspected = {node for pair in slow for node in pair}
    sound = [node for node in range(nodes) if node not in suspected]
    pairs = suspects + [(min(end, other), max(end, other)) for pair in suspects for end in pair for other in sound[:1]]
    return list(dict.fromkeys(pairs))


def slow_nodes(links: Sequence[Facts]) -> list[int]:
    """Find the nodes whose links, two or more, are all slow."""
    slow, measured = set(slow_pairs(links)), best(links)
    nodes = sorted({node for pair in measured for node in pair})
    found = []
    for node in nodes:
        pairs = [pair for pair in measured if node in pair]
        if len(pairs) >= 2 and slow.issuperset(pairs):
            found.append(node)
    return found
