# SPDX-License-Identifier: Apache-2.0
"""The messages of an allreduce, a broadcast or a reduce between nodes, member by member, as in ext/transport/net.

The choice is that of the C code; a test compares messages and bytes with the counters of real jobs.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from hpccoll import _core

ALPHA, BETA, GAMMA = 2e-5, 1e-9, 1e-10
"""The costs that hierarchy.c assumes of every network: seconds per message, per byte, per byte summed."""
INCAST = 0.01
"""Share by which a byte takes longer per further member that sends to the same receiver at once (choose.c)."""
LATENCY_BYTES = 20_000
"""The bytes that a link carries in the time ALPHA (HPCCOLL_LATENCY_BYTES)."""
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


# ---- the choice of choose.c -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """How an allreduce between nodes runs."""

    algorithm: str
    whole: bool
    """All data is exchanged in each stage; otherwise parts are scattered, then gathered."""
    dtype: str
    """The dtype that travels; partial sums of 16-bit floats may be float32."""
    radices: tuple[int, ...]
    """The number of members in a group of each stage, from the nearest members to the farthest; empty for a ring."""
    extra: int
    """Members without a position: one in each of the first groups of the first stage."""
    seconds: float
    """The predicted time, with the costs that choose.c assumes."""

    def __str__(self) -> str:
        """Write the algorithm with its stages, as "stages of 16 x 16 x 9 x 2"."""
        return stages(self.radices, self.extra) if self.algorithm == "stages" else self.algorithm


def stages(radices: tuple[int, ...], extra: int) -> str:
    """Write stages, as "stages of 16 x 16 x 9 x 2"."""
    rest = f" and {extra} more" if extra else ""
    return f"stages of {' x '.join(map(str, radices))}{rest}"


@lru_cache(maxsize=4096)
def choose(
    n: int, count: int, dtype: str, algorithm: str = "auto", latency_bytes: int = LATENCY_BYTES, exact: bool = False
) -> Choice:
    """Ask the C code how it would sum `count` elements of each of n members.

    :param algorithm: as HPCCOLL_ALGORITHM
    :param exact: as HPCCOLL_EXACT_SUMS
    """
    return Choice(*_core.net_choice(n, count, dtype, algorithm, exact, latency_bytes * BETA, BETA, GAMMA))


# ---- rounds --------------------------------------------------------------------------------------------------

Block = tuple[int, int]
"""The first element, and the number of elements."""


@dataclass(frozen=True)
class _Stages:
    """The positions of stages.c: a digit per stage; the members of a stage differ in this digit alone."""

    radices: tuple[int, ...]
    extra: int
    count: int
    whole: bool

    def member(self, position: int) -> int:
        """Return the member at a position."""
        return position + min(position // self.radices[0], self.extra)

    def position(self, me: int) -> int:
        """Return the position of a member, or -1."""
        radix = self.radices[0]
        group, digit = divmod(me, radix + 1)
        if group >= self.extra:
            return me - self.extra
        return group * radix + digit if digit < radix else -1

    def distance(self, stage: int) -> int:
        """Return how far apart the members of a stage are."""
        return math.prod(self.radices[:stage])

    def digit(self, stage: int, position: int) -> int:
        """Return a digit of a position."""
        return position // self.distance(stage) % self.radices[stage]

    def others(self, stage: int, position: int) -> list[int]:
        """Return the other positions of a group."""
        own = self.digit(stage, position)
        step = self.distance(stage)
        return [position + (q - own) * step for q in range(self.radices[stage]) if q != own]

    def block(self, position: int, stages: int) -> Block:
        """Return the elements that a position works on after a number of stages."""
        at, length = 0, self.count
        for stage in range(0 if self.whole else stages):
            radix, digit = self.radices[stage], self.digit(stage, position)
            begin, end = (even_part(length, radix, i) for i in (digit, digit + 1))
            at, length = at + begin, end - begin
        return at, length

    def extra_of(self, position: int) -> int:
        """Return the member without a position in a group of the first stage, or -1."""
        group = position // self.radices[0]
        return group * (self.radices[0] + 1) + self.radices[0] if group < self.extra else -1

    def outward(self, stage: int, position: int) -> Round:
        """Return the round in which a group scatters its elements, or exchanges all of them."""
        mine = self.block(position, stage + 1)[1]
        sends = [(self.member(q), self.block(q, stage + 1)[1]) for q in self.others(stage, position)]
        receives = [(self.member(q), mine) for q in self.others(stage, position)]
        if stage == 0 and self.extra_of(position) >= 0:
            receives.append((self.extra_of(position), mine))
        return Round(tuple(sends), tuple(receives), (len(receives) + 1) * mine)

    def back(self, stage: int, position: int) -> Round:
        """Return the round in which a group gathers the results."""
        mine = self.block(position, stage + 1)[1]
        sends = [(self.member(q), mine) for q in self.others(stage, position)]
        receives = [(self.member(q), self.block(q, stage + 1)[1]) for q in self.others(stage, position)]
        if stage == 0 and self.extra_of(position) >= 0:
            sends.append((self.extra_of(position), mine))
        return Round(tuple(sends), tuple(receives))

    def returned(self, position: int) -> Round:
        """Return the round in which the last position of a group sends the result to the member without a position."""
        gives = self.extra_of(position) >= 0 and position % self.radices[0] == self.radices[0] - 1
        return Round(sends=((self.extra_of(position), self.count),) if gives else ())

    def rounds(self, me: int) -> list[Round]:
        """Return the rounds of a member; those without a position have as many as the others."""
        depth, position = len(self.radices), self.position(me)
        if position < 0:
            return self._extra_rounds(me)
        outward = [self.outward(stage, position) for stage in range(depth)]
        if self.whole:
            return outward + ([self.returned(position)] if self.extra else [])
        return outward + [self.back(stage, position) for stage in reversed(range(depth))]

    # A broadcast and a reduce, whose root is member 0. Its position is 0.

    def shared(self, stage: int, position: int) -> Round:
        """Return the round of a broadcast in which a member with all elements of its group gives the others parts."""
        if position >= self.distance(stage + 1):
            return Round()
        if position >= self.distance(stage):
            holder = self.member(position % self.distance(stage))
            return Round(receives=((holder, self.block(position, stage + 1)[1]),))
        return Round(tuple((self.member(q), self.block(q, stage + 1)[1]) for q in self.others(stage, position)))

    def gathered(self, stage: int, position: int) -> Round:
        """Return the round of a broadcast in which a group gathers its elements, without a member that has them."""
        has = {self.member(q) for q in self.others(stage, position) if q < self.distance(stage)}
        both = self.back(stage, position)
        sends = tuple((to, elements) for to, elements in both.sends if to not in has)
        return Round(sends, () if position < self.distance(stage) else both.receives)

    def broadcast(self, me: int) -> list[Round]:
        """Return the rounds of a member in a broadcast."""
        position, stages = self.position(me), range(len(self.radices))
        if position < 0:
            return [*[Round()] * (2 * len(stages) - 1), Round(receives=self._extra_rounds(me)[0].sends)]
        return [self.shared(s, position) for s in stages] + [self.gathered(s, position) for s in reversed(stages)]

    def reduce(self, me: int) -> list[Round]:
        """Return the rounds of a member in a reduce: it adds up as in an allreduce, and the root gets the parts."""
        position, stages = self.position(me), range(len(self.radices))
        if position < 0:
            return [self._extra_rounds(me)[0], *[Round()] * (2 * len(stages) - 1)]
        parts = [self.shared(s, position) for s in reversed(stages)]
        return [self.outward(s, position) for s in stages] + [Round(one.receives, one.sends) for one in parts]

    def _extra_rounds(self, me: int) -> list[Round]:
        first = me // (self.radices[0] + 1) * self.radices[0]
        group = range(first, first + self.radices[0])
        blocks = tuple((self.member(q), self.block(q, 1)[1]) for q in group)
        between = [Round()] * (len(self.radices) - 1 if self.whole else 2 * len(self.radices) - 2)
        return [Round(sends=blocks), *between, Round(receives=blocks[-1:] if self.whole else blocks)]


def _ring(n: int, me: int, count: int) -> list[Round]:
    def part(i: int) -> int:
        return even_part(count, n, i % n + 1) - even_part(count, n, i % n)

    right, left, found = (me + 1) % n, (me - 1) % n, []
    for r in range(2 * (n - 1)):
        received = part(me - r - 1)
        found.append(Round(((right, part(me - r)),), ((left, received),), 2 * received if r < n - 1 else 0))
    return found


def rounds(choice: Choice, n: int, me: int, count: int) -> list[Round]:
    """Return the messages and sums of member `me` of n, round by round. Messages without elements are not sent.

    :param count: elements that each member has
    """
    if not choice.radices:
        return _ring(n, me, count)
    return _Stages(choice.radices, choice.extra, count, choice.whole).rounds(me)


def broadcast_rounds(radices: tuple[int, ...], extra: int, me: int, count: int) -> list[Round]:
    """Return the messages of member `me` in a broadcast of `count` elements in stages; the root is member 0."""
    return _Stages(radices, extra, count, False).broadcast(me)


def reduce_rounds(radices: tuple[int, ...], extra: int, me: int, count: int) -> list[Round]:
    """Return the same for a reduce."""
    return _Stages(radices, extra, count, False).reduce(me)


@dataclass(frozen=True)
class Load:
    """The load of an allreduce among n members on the busiest member."""

    rounds: int
    """Rounds of messages that wait for one another. The messages of a round are under way together."""
    further: int
    """Messages that are received together with the first one of their round."""
    nbytes: float
    """Bytes in the busier direction of its link, round by round."""
    summed: float
    """Bytes that its sums read."""
    incast: float = 1.0
    """The factor by which a byte takes longer because several members send to one at once."""


def _incast(choice: Choice) -> float:
    """Return the mean of the stages' factors by the bytes that they move."""
    left, moved, weighed = 1.0, 0.0, 0.0
    for radix in choice.radices if not choice.whole else ():
        share = left * (radix - 1) / radix
        moved, weighed, left = moved + share, weighed + share * (1 + INCAST * (radix - 2)), left / radix
    return weighed / moved if moved else 1.0


@lru_cache(maxsize=4096)
def load(choice: Choice, n: int, count: int) -> Load:
    """Return the busiest member's load. A group with a member without a position does more than others."""
    if n == 1 or count == 0:
        return Load(0, 0, 0.0, 0.0)
    size = SIZES[choice.dtype]
    if choice.algorithm == "ring":
        part = even_part(count, n, 1)
        total = min(part * n, 2 * count) * (n - 1) / n
        return Load(2 * (n - 1), 0, 2 * total * size, 2 * total * size)
    seen = dict.fromkeys((0, 1, n - 1, choice.radices[0] if choice.extra else 0))
    members = [rounds(choice, n, me, count) for me in seen]
    waits, further, nbytes, summed = 0, 0, 0.0, 0.0
    for together in zip(*members, strict=True):
        messages = max(len([1 for _, elements in member.receives or member.sends if elements]) for member in together)
        waits, further = waits + (messages > 0), further + max(0, messages - 1)
        nbytes += size * max(
            max(sum(elements for _, elements in member.sends), sum(elements for _, elements in member.receives))
            for member in together
        )
        summed += size * max(member.sums for member in together)
    return Load(waits, further, nbytes, summed, _incast(choice))
