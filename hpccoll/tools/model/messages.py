# SPDX-License-Identifier: Apache-2.0
"""The messages of an allreduce between nodes: the algorithms of ext/transport/net, member by member.

A test compares the choice with that of the C code (choose.c), and messages and bytes with the counters of real jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

ALPHA, BETA, GAMMA = 2e-5, 1e-9, 1e-10
"""The costs that hierarchy.c assumes of every network: seconds per message, per byte, per byte summed."""
FURTHER = 0.2
"""Share of alpha that each further message costs if several are posted together (choose.c)."""
INCAST = 0.01
"""Share by which a byte takes longer per further member that sends to the same receiver at once (choose.c)."""
ALGORITHMS = ("recursive_doubling", "direct", "ring", "rabenseifner")
"""In the order of choose.h."""
HALVES = ("float16", "bfloat16")
SIZES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Round:
    """The messages that one member sends and receives together: (other member, elements)."""

    sends: tuple[tuple[int, int], ...] = ()
    receives: tuple[tuple[int, int], ...] = ()
    sums: int = 0
    """Elements that are read by the sum of what was received."""


PART_ALIGNED = 1024
"""Elements of a part that begins at a multiple of 64."""


def ceil_div(a: int, b: int) -> int:
    """Divide and round up."""
    return (a + b - 1) // b


def even_part(count: int, members: int, i: int) -> int:
    """Return the first element of a member's part: parts of 1024 elements and more begin at multiples of 64."""
    if count // members < PART_ALIGNED:
        return i * (count // members) + min(i, count % members)
    part = ceil_div(ceil_div(count, members), 64) * 64
    return min(i * part, count)


def travels_as(algorithm: str, dtype: str) -> str:
    """Return the dtype between nodes: partial sums of 16-bit floats are sent as float32, contributions unconverted."""
    return "float32" if dtype in HALVES and algorithm != "direct" else dtype


# ---- the costs of choose.c -----------------------------------------------------------------------------------


def _together(members: int, alpha: float) -> float:
    return alpha * (1 + FURTHER * (members - 1)) if members > 0 else 0.0


def _direct_costs(n: int, size: float, alpha: float) -> tuple[float, float]:
    whole = _together(n - 1, alpha) + (n - 1) * size * BETA + n * size * GAMMA
    incast = 1 + INCAST * (n - 2)
    parts = 2 * _together(n - 1, alpha) + 2 * (n - 1) / n * size * BETA * incast + size * GAMMA
    return whole, parts


def sends_whole(n: int, count: int, dtype: str, alpha: float = ALPHA) -> bool:
    """Return whether `direct` sends everything to all members in one round."""
    whole, parts = _direct_costs(n, count * SIZES[dtype], alpha)
    return whole <= parts


def cost(algorithm: str, n: int, count: int, dtype: str, alpha: float = ALPHA) -> float:
    """Return the seconds that choose.c assigns to an algorithm among n members."""
    size = float(count * SIZES[travels_as(algorithm, dtype)])
    rounds = n.bit_length() - 1
    fold = 2 * (alpha + size * BETA) + 2 * size * GAMMA if 1 << rounds != n else 0.0
    halves = 2 * (n - 1) / n * size
    if algorithm == "recursive_doubling":
        return fold + rounds * (alpha + size * BETA + 2 * size * GAMMA)
    if algorithm == "ring":
        return 2 * (n - 1) * alpha + halves * BETA + halves * GAMMA
    if algorithm == "rabenseifner":
        return fold + 2 * rounds * alpha + 1.1 * halves * BETA + halves * GAMMA
    return min(_direct_costs(n, size, alpha))


def choose(n: int, count: int, dtype: str, alpha: float = ALPHA) -> str:
    """Return the algorithm that runs unless `HPCCOLL_ALGORITHM` names one; `direct` wins a tie.

    :param alpha: HPCCOLL_LATENCY_BYTES times BETA
    """
    best = "direct"
    for algorithm in ALGORITHMS:
        if cost(algorithm, n, count, dtype, alpha) < cost(best, n, count, dtype, alpha):
            best = algorithm
    return best


# ---- rounds --------------------------------------------------------------------------------------------------


def _recursive_doubling(n: int, me: int, count: int, whole: bool) -> list[Round]:
    del whole
    place = _Place(n, me)
    middle = []
    for level in range(place.levels if place.position >= 0 else 0):
        partner = place.member(place.position ^ 1 << level)
        middle.append(Round(((partner, count),), ((partner, count),), 2 * count))
    return place.folded(middle, place.levels, count)


def _rabenseifner(n: int, me: int, count: int, whole: bool) -> list[Round]:
    del whole
    place = _Place(n, me)
    core = 1 << place.levels

    def block(position: int, size: int) -> int:
        first = position & ~(size - 1)
        return even_part(count, core, first + size) - even_part(count, core, first)

    middle = []
    for half in [core >> out for out in range(1, place.levels + 1)] if place.position >= 0 else []:
        other = place.position ^ half
        mine = block(place.position, half)
        middle.append(Round(((place.member(other), block(other, half)),), ((place.member(other), mine),), 2 * mine))
    for half in [1 << back for back in range(place.levels)] if place.position >= 0 else []:
        other = place.position ^ half
        middle.append(Round(((place.member(other), block(place.position, half)),),
                            ((place.member(other), block(other, half)),)))  # fmt: skip
    return place.folded(middle, 2 * place.levels, count)


class _Place:
    """A member's place after the fold of doubling.c: members beyond a power of two are folded into a neighbour."""

    def __init__(self, n: int, me: int) -> None:
        self.levels = n.bit_length() - 1
        self.extra = n - (1 << self.levels)
        self.buddy, self.position = -1, me - self.extra
        if me < 2 * self.extra:
            self.buddy, self.position = me ^ 1, me // 2 if me % 2 else -1

    def member(self, position: int) -> int:
        """Return the member at a position of the core."""
        return 2 * position + 1 if position < self.extra else position + self.extra

    def folded(self, middle: list[Round], rounds: int, count: int) -> list[Round]:
        """Put the core's rounds between the two in which a folded member gives its data and gets the result."""
        if not self.extra:
            return middle
        given = ((self.buddy, count),) if self.buddy >= 0 else ()
        if self.position < 0:
            return [Round(sends=given), *[Round()] * rounds, Round(receives=given)]
        return [Round(receives=given, sums=2 * count if given else 0), *middle, Round(sends=given)]


def _ring(n: int, me: int, count: int, whole: bool) -> list[Round]:
    del whole

    def part(i: int) -> int:
        return even_part(count, n, i % n + 1) - even_part(count, n, i % n)

    right, left, found = (me + 1) % n, (me - 1) % n, []
    for r in range(2 * (n - 1)):
        received = part(me - r - 1)
        found.append(Round(((right, part(me - r)),), ((left, received),), 2 * received if r < n - 1 else 0))
    return found


def _direct(n: int, me: int, count: int, whole: bool) -> list[Round]:
    others = [q for q in range(n) if q != me]
    if whole:
        all_of_it = tuple((q, count) for q in others)
        return [Round(all_of_it, all_of_it, n * count)]
    parts = [even_part(count, n, i + 1) - even_part(count, n, i) for i in range(n)]
    others_parts = tuple((q, parts[q]) for q in others)
    mine = tuple((q, parts[me]) for q in others)
    return [Round(others_parts, mine, n * parts[me]), Round(mine, others_parts)]


_ROUNDS: dict[str, Callable[[int, int, int, bool], list[Round]]] = {
    "recursive_doubling": _recursive_doubling,
    "direct": _direct,
    "ring": _ring,
    "rabenseifner": _rabenseifner,
}


def rounds(algorithm: str, n: int, me: int, count: int, dtype: str, alpha: float = ALPHA) -> list[Round]:
    """Return the messages and sums of member `me` of n, round by round. Messages without elements are not sent.

    :param algorithm: one of ALGORITHMS
    :param count: elements that each member has
    """
    return _ROUNDS[algorithm](n, me, count, algorithm == "direct" and sends_whole(n, count, dtype, alpha))


@dataclass(frozen=True)
class Load:
    """The load of an allreduce among n members on the busiest member."""

    latencies: float
    """Messages that wait for one another; one that is posted together with others counts as FURTHER."""
    nbytes: float
    """Bytes in the busier direction of its link, round by round."""
    summed: float
    """Bytes that its sums read."""
    incast: float = 1.0
    """The factor by which a byte takes longer because several members send to one at once."""


@lru_cache(maxsize=4096)
def load(algorithm: str, n: int, count: int, dtype: str, alpha: float = ALPHA) -> Load:
    """Return the busiest member's load. Members of a fold do more than others, the last one less."""
    if n == 1 or count == 0:
        return Load(0.0, 0.0, 0.0)
    size = SIZES[travels_as(algorithm, dtype)]
    if algorithm == "ring":
        part = even_part(count, n, 1)
        total = min(part * n, 2 * count) * (n - 1) / n
        return Load(2.0 * (n - 1), 2 * total * size, 2 * total * size)
    members = [rounds(algorithm, n, me, count, dtype, alpha) for me in dict.fromkeys((0, min(1, n - 1), n - 1))]
    latencies = nbytes = summed = 0.0
    for together in zip(*members, strict=True):
        messages = max(len([1 for _, elements in member.receives or member.sends if elements]) for member in together)
        latencies += _together(messages, 1.0)
        nbytes += size * max(
            max(sum(elements for _, elements in member.sends), sum(elements for _, elements in member.receives))
            for member in together
        )
        summed += size * max(member.sums for member in together)
    parts = algorithm == "direct" and not sends_whole(n, count, dtype, alpha)
    return Load(latencies, nbytes, summed, 1 + INCAST * (n - 2) if parts else 1.0)
