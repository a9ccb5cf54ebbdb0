# SPDX-License-Identifier: Apache-2.0
"""How many bytes cross the links between groups of nodes (decisions 123, 125 and 126).

    python benchmarks/simulator/partners.py [NODES ...]
    python benchmarks/simulator/partners.py groups [NODES ...]

The order of partners is ours or that of Bine trees; the order of the nodes is that of the allocation, or that of
`ext/world/node_order.c`, in which whole groups come first.

Messages are counted, no time is simulated. A job's nodes lie in groups: those of a dragonfly, where two groups share
one link, or those below a leaf switch of a fat tree, whose links up carry all that leaves the leaf. Bytes are in units
of the array. A reduce sends what a broadcast sends, the other way.

Bine trees: De Sensi et al., "Bine Trees: Enhancing Collective Operations by Optimizing Communication Locality" (SC '25,
doi 10.1145/3712285.3759835). The partners of the steps are 1, 1, 3, 5, 11, 21, ... apart, where those of recursive
doubling are 1, 2, 4, 8, ... apart. They need a power of two; for other numbers of nodes only ours are counted.
"""

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from hpccoll import _core
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


def fragmented(n: int, _group: int, draw: random.Random) -> list[int]:
    """Return runs of 1 to 31 free nodes, with as many busy ones between them, ordered along the network."""
    slots: list[int] = []
    at = draw.randrange(1000)
    while len(slots) < n:
        length = draw.randrange(1, 32)
        slots += range(at, at + length)
        at += length + draw.randrange(1, 32)
    return slots[:n]


def scattered(n: int, _group: int, draw: random.Random) -> list[int]:
    """Return every second one of twice as many nodes on average, ordered along the network."""
    first = draw.randrange(1000)
    return sorted(draw.sample(range(first, first + 2 * n), n))


def unordered(n: int, group: int, draw: random.Random) -> list[int]:
    """Return the nodes of `fragmented` in an order that has nothing to do with the network."""
    slots = fragmented(n, group, draw)
    draw.shuffle(slots)
    return slots


ALLOCATIONS: tuple[Callable[[int, int, random.Random], list[int]], ...] = (
    aligned, contiguous, fragmented, scattered, unordered
)  # fmt: skip


def as_given(slots: list[int], _group: int) -> list[int]:
    """Return the nodes in the order of the allocation."""
    return slots


def whole_first(slots: list[int], group: int) -> list[int]:
    """Return the nodes in the order that the library gives them."""
    positions, _ = _core.nodes_order([f"g{slot // group}/n{slot}" for slot in slots])
    return [slot for _, slot in sorted(zip(positions, slots, strict=True))]


def by_divisor(slots: list[int], group: int) -> list[int]:
    """Return the nodes such that groups whose sizes share a large divisor with the number of nodes come first.

    Decision 125 has not taken this order.
    """
    size = Counter(slot // group for slot in slots)
    return sorted(slots, key=lambda slot: (-math.gcd(size[slot // group], len(slots)), slot))


ORDERS = (as_given, whole_first, by_divisor)


# ---- groups whose tail is cut -------------------------------------------------------------------------------------


def known_group(slots: list[int], group: int, tail: float) -> int:
    """Return the size of equal groups that no border of the network cuts; 0: there is one group.

    :param slots: in the order that the library gives them
    :param tail: the share of the nodes at the end in which no border counts
    """
    n, found, first = len(slots), len(slots), 0
    for _, run in itertools.groupby(slots, lambda slot: slot // group):
        if n - first > tail * n:
            found = math.gcd(found, size := len(list(run)))
            first += size
    return found if found < n else 0


def known_radices(n: int, known: int) -> tuple[int, ...]:
    """Return the stages that the model chooses if every so many nodes are known to share a switch."""
    costs = (messages.ALPHA, messages.BETA, messages.GAMMA)
    algorithm, whole, _, stages, extra, _ = _core.net_choice(n, CHUNK // 4, "float32", "auto", False, *costs, known)
    assert (algorithm, whole, extra) == ("stages", False, 0), f"{n} nodes have a large prime factor"
    return tuple(stages)


def cut_groups(network: Network, n: int, tails: Sequence[float]) -> str:
    """Return a line of the table of an allreduce: means of runs of nodes from each place of a group on."""
    sent: dict[tuple[int, ...], list[Message]] = {}
    runs = [whole_first(list(range(first, first + n)), network.group) for first in range(network.group)]
    counted = []
    for tail in tails:
        stages = [known_radices(n, known_group(slots, network.group, tail)) for slots in runs]
        sent |= {each: list(stages_allreduce(n, each)) for each in set(stages) if each not in sent}
        counted.append([network.load(sent[each], slots) for each, slots in zip(stages, runs, strict=True)])
    more = [sum(new[1] > 1.03 * old[1] for old, new in zip(counted[0], each, strict=True)) for each in counted]
    figures = [f"{mean(a for a, _ in each):.1f} | {mean(b for _, b in each):.2f}" for each in counted]
    worse = ", ".join(map(str, more[1:]))
    return f"| {network.name} | {n} | {' | '.join(figures)} | {worse} of {network.group} |"


# ---- the table ----------------------------------------------------------------------------------------------------


def forms(n: int, known: int) -> dict[str, list[Iterator[Message]]]:
    """Return by operation our messages; for a power of two also ours in stages of two members, and Bine's.

    :param known: nodes of a group, if all groups are whole; or 0
    """
    if n & (n - 1):
        choice = messages.choose(n, CHUNK // 4, "float32")
        assert choice.extra == 0, f"{n} nodes have a large prime factor"
        return {"allreduce": [stages_allreduce(n, choice.radices)], "tree": [binomial(n)]}
    stages, pairs = radices(n, known), (2,) * int(math.log2(n))
    return {
        "allreduce": [stages_allreduce(n, stages), stages_allreduce(n, pairs), bine_allreduce(n)],
        "broadcast": [stages_broadcast(n, stages), stages_broadcast(n, pairs), bine_broadcast(n)],
        "tree": [binomial(n), binomial(n), bine_tree(n)],
    }


def loads(network: Network, allocate: Callable[[int, int, random.Random], list[int]], n: int) -> Iterator[str]:
    """Yield lines of the table: means of 20 allocations, with the nodes in each order."""
    whole = allocate is aligned and n > network.group and n % network.group == 0
    draws = range(1 if allocate is aligned else 20)
    slots = [allocate(n, network.group, random.Random(seed)) for seed in draws]
    for operation, sent in forms(n, network.group if whole else 0).items():
        forms_sent = list(map(list, sent))
        for order in ORDERS:
            ordered = [order(each, network.group) for each in slots]
            counted = [[network.load(its, each) for each in ordered] for its in forms_sent]
            totals, hot = zip(*[[mean(each) for each in zip(*its, strict=True)] for its in counted], strict=True)
            figures = [f"{totals[0]:.1f}", "-", f"{hot[0]:.2f}", "-", "-", "-"]
            if len(hot) > 1:
                figures[1::2] = f"{totals[2]:.1f}", f"{hot[1]:.2f}", f"{hot[2] / hot[0]:.2f}" if hot[0] else "-"
                figures[4] = f"{hot[2]:.2f}"
            words = (network.name, allocate.__name__, order.__name__, str(n), operation, *figures)
            yield f"| {' | '.join(words)} |"


TAILS = (0.0, 1 / 5)
"""All groups count; those that begin in the last fifth of the nodes do not."""


def groups_table(numbers: Sequence[int]) -> None:
    """Print what stages of known groups carry if some of the last groups do not count."""
    print("| network | nodes | all links | busiest link | without tail: all links | busiest link | 3 % worse |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for network in NETWORKS:
        for n in numbers:
            print(cut_groups(network, n, TAILS), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["groups"]:
        groups_table([int(n) for n in sys.argv[2:]] or [480, 500, 512, 576, 600, 1000])
        return
    print(
        "| network | nodes are | ordered | nodes | operation | all links | Bine | busiest link | in pairs | Bine "
        "| Bine / ours |"
    )
    print("|---|---|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for network in NETWORKS:
        for allocate in ALLOCATIONS:
            for n in map(int, sys.argv[1:] or ("64", "512", "1024")):
                print(*loads(network, allocate, n), sep="\n", flush=True)


if __name__ == "__main__":
    main()
