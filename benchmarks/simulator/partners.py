# SPDX-License-Identifier: Apache-2.0
"""How many bytes cross the links between groups of nodes: our order of partners beside Bine trees (decision 123).

    python benchmarks/simulator/partners.py

Messages are counted, no time is simulated. A job's nodes lie in groups: those of a dragonfly, where two groups share
one link, or those below a leaf switch of a fat tree, whose links up carry all that leaves the leaf. Bytes are in units
of the array. A reduce sends what a broadcast sends, the other way.

Bine trees: De Sensi et al., "Bine Trees: Enhancing Collective Operations by Optimizing Communication Locality" (SC '25,
doi 10.1145/3712285.3759835). The partners of the steps are 1, 1, 3, 5, 11, 21, ... apart, where those of recursive
doubling are 1, 2, 4, 8, ... apart. They need a power of two.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import mean

from hpccoll.tools.model import messages

Message = tuple[int, int, float]
"""From, to, bytes."""
CHUNK = 192 << 10
"""Bytes of a chunk: the model chooses the stages for it."""
MOST = 4
"""The largest radix of the stages that the model chooses for these numbers of nodes."""


# ---- ours ---------------------------------------------------------------------------------------------------------


def factors(n: int) -> tuple[int, ...]:
    """Split a power of two into stages, the largest radix first, as radices.c does."""
    return (MOST,) * (int(math.log2(n)) // 2) + (2,) * (int(math.log2(n)) % 2)


def radices(n: int, group: int) -> tuple[int, ...]:
    """Return the stages of n nodes; those of a known group come first, if the numbers allow it."""
    return factors(group) + factors(n // group) if group and n % group == 0 and group < n else factors(n)


def stages_allreduce(n: int, stages: tuple[int, ...]) -> Iterator[Message]:
    """Yield the messages of parts that are scattered to the nearest members first, and gathered."""
    count = 64 * 64 * n  # all parts are equal
    choice = replace(messages.choose(n, CHUNK // 4, "float32"), radices=stages, extra=0, whole=False)
    for me in range(n):
        for one in messages.rounds(choice, n, me, count):
            yield from ((me, other, elements / count) for other, elements in one.sends)


def stages_broadcast(n: int, stages: tuple[int, ...]) -> Iterator[Message]:
    """Yield the messages of member 0's data, scattered down the stages and gathered: a member gets each byte once."""
    distance, part = 1, 1.0
    for radix in stages:
        part /= radix
        for position in range(n):
            own = position // distance % radix
            others = [position + (q - own) * distance for q in range(radix) if q != own]
            if position < distance:  # it holds its group's block: it gives, and needs nothing back
                yield from ((position, other, part) for other in others)
            yield from ((position, other, part) for other in others if other >= distance)
        distance *= radix


def binomial(n: int) -> Iterator[Message]:
    """Yield the messages of a binomial tree from member 0: each goes to the parent's number and a bit."""
    for place in range(1, n):
        yield place & (place - 1), place, 1.0


# ---- Bine ---------------------------------------------------------------------------------------------------------


def distance_of(step: int) -> int:
    """Return 1 - 2 + 4 - ... of step + 1 terms: how far the partner of an even number is."""
    return sum((-2) ** k for k in range(step + 1))


def partner(n: int, member: int, step: int) -> int:
    """Return the partner in a step of the butterfly, which is mutual: an even and an odd number."""
    return (member + (distance_of(step) if member % 2 == 0 else -distance_of(step))) % n


def bine_allreduce(n: int) -> Iterator[Message]:
    """Yield a reduce-scatter that begins with the nearest partners, and an allgather back."""
    for step in range(int(math.log2(n))):
        for member in range(n):
            yield from [(member, partner(n, member, step), 0.5 ** (step + 1))] * 2


def bine_broadcast(n: int) -> Iterator[Message]:
    """Yield a scatter down the butterfly from member 0, and an allgather back of what a member has not."""
    holds = {0}
    for step in range(int(math.log2(n))):
        part = 0.5 ** (step + 1)
        yield from ((member, partner(n, member, step), part) for member in holds)
        yield from ((member, to, part) for member in range(n) if (to := partner(n, member, step)) not in holds)
        holds |= {partner(n, member, step) for member in holds}
    assert len(holds) == n


def bine_tree(n: int) -> Iterator[Message]:
    """Yield the messages of the tree from member 0 whose farthest children come first."""
    holds = {0}
    for step in reversed(range(int(math.log2(n)))):
        sent = {member: partner(n, member, step) for member in holds}
        yield from ((member, to, 1.0) for member, to in sent.items())
        holds |= set(sent.values())
    assert len(holds) == n


# ---- networks and allocations -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """Groups of nodes, with one link between two of them (a dragonfly) or links up from each (a fat tree)."""

    name: str
    group: int
    pairs: bool

    def load(self, sent: Iterable[Message], slots: list[int]) -> tuple[float, float]:
        """Return the bytes between groups, and those of the busiest link in its busier direction.

        :param slots: the place of each member in the network
        """
        links: Counter[tuple[object, int]] = Counter()
        total = 0.0
        for sender, receiver, nbytes in sent:
            here, there = slots[sender] // self.group, slots[receiver] // self.group
            if here == there:
                continue
            total += nbytes
            for link in [(here, there)] if self.pairs else [("up", here), ("down", there)]:
                links[link] += nbytes
        return total, max(links.values(), default=0.0)


NETWORKS = (Network("dragonfly, groups of 128", 128, pairs=True), Network("fat tree, leaves of 32", 32, pairs=False),
            Network("fat tree, leaves of 18", 18, pairs=False))  # fmt: skip


def aligned(n: int, _group: int, _draw: random.Random) -> list[int]:
    """Return one run of nodes from the first one of a group."""
    return list(range(n))


def contiguous(n: int, _group: int, draw: random.Random) -> list[int]:
    """Return one run of nodes from anywhere."""
    first = draw.randrange(1, 1000)
    return list(range(first, first + n))


def largest_first(n: int, group: int, draw: random.Random) -> list[int]:
    """Return the nodes of `contiguous`, those of whole groups before those of its two ends."""
    slots = contiguous(n, group, draw)
    size = Counter(slot // group for slot in slots)
    return sorted(slots, key=lambda slot: (-size[slot // group], slot))


def fragmented(n: int, _group: int, draw: random.Random) -> list[int]:
    """Return runs of 1 to 31 free nodes, with as many busy ones between them, ordered along the network."""
    slots: list[int] = []
    at = draw.randrange(1000)
    while len(slots) < n:
        length = draw.randrange(1, 32)
        slots += range(at, at + length)
        at += length + draw.randrange(1, 32)
    return slots[:n]


def unordered(n: int, group: int, draw: random.Random) -> list[int]:
    """Return the nodes of `fragmented` in an order that has nothing to do with the network."""
    slots = fragmented(n, group, draw)
    draw.shuffle(slots)
    return slots


ALLOCATIONS: tuple[Callable[[int, int, random.Random], list[int]], ...] = (
    aligned, contiguous, largest_first, fragmented, unordered
)  # fmt: skip


# ---- the table ----------------------------------------------------------------------------------------------------


def forms(n: int, known: int) -> dict[str, tuple[Iterator[Message], Iterator[Message], Iterator[Message]]]:
    """Return by operation our messages, ours in stages of two members, and Bine's.

    :param known: nodes of a group, if all groups are whole; or 0
    """
    stages, pairs = radices(n, known), (2,) * int(math.log2(n))
    return {
        "allreduce": (stages_allreduce(n, stages), stages_allreduce(n, pairs), bine_allreduce(n)),
        "broadcast": (stages_broadcast(n, stages), stages_broadcast(n, pairs), bine_broadcast(n)),
        "tree": (binomial(n), binomial(n), bine_tree(n)),
    }


def loads(network: Network, allocate: Callable[[int, int, random.Random], list[int]], n: int) -> Iterator[str]:
    """Yield lines of the table: means of 20 allocations."""
    whole = allocate is aligned and n > network.group and n % network.group == 0
    draws = range(1 if allocate is aligned else 20)
    slots = [allocate(n, network.group, random.Random(seed)) for seed in draws]
    for operation, sent in forms(n, network.group if whole else 0).items():
        counted = [[network.load(its, each) for each in slots] for its in map(list, sent)]
        means = [[mean(each) for each in zip(*its, strict=True)] for its in counted]
        (total, hot), (_, hot_pairs), (bine, hot_bine) = means
        ratio = f"{hot_bine / hot:.2f}" if hot else "-"
        words = (network.name, allocate.__name__, n, operation, f"{total:.1f}", f"{bine:.1f}", f"{hot:.2f}",
                 f"{hot_pairs:.2f}", f"{hot_bine:.2f}", ratio)  # fmt: skip
        yield f"| {' | '.join(map(str, words))} |"


def main() -> None:
    print(
        "| network | nodes are | nodes | operation | all links | Bine | busiest link | in pairs | Bine | Bine / ours |"
    )
    print("|---|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for network in NETWORKS:
        for allocate in ALLOCATIONS:
            for n in (64, 512, 1024):
                print(*loads(network, allocate, n), sep="\n", flush=True)


if __name__ == "__main__":
    main()
