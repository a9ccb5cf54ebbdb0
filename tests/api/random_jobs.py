# SPDX-License-Identifier: Apache-2.0
"""Random programs of a whole World: the seed gives every rank the inputs of all ranks, and so the expected results.

A program has rounds. In each round the ranks enqueue the same requests, in the World and in overlapping process sets.
Each rank enqueues the named ones in another order, with pauses, and exchanges messages meanwhile. Some requests differ
on one rank and must fail with the same error on all ranks. Plans are started beside them, in another order on each
rank. Then each rank waits in another order, and the ranks make blocking calls. At the end the ranks join one after the
other.

    hpccoll run -np 3 --nodes 2 python tests/api/random_jobs.py --seconds 60
    hpccoll run -np 4 --nodes 2 -x MPI4PY_RC_THREAD_LEVEL=funneled python tests/api/random_jobs.py
"""

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import hpccoll
from hpccoll import errors

World = hpccoll.World
Array = np.ndarray[Any, Any]

DTYPES = ("int8", "int32", "int64", "float16", "float32", "float64")
REDUCTIONS = {
    hpccoll.SUM: np.add.reduce,
    hpccoll.MIN: np.minimum.reduce,
    hpccoll.MAX: np.maximum.reduce,
    hpccoll.PRODUCT: np.multiply.reduce,
}
ROWS = (0, 1, 2, 7, 100, 3000, 40_000)
KINDS = (
    "allreduce",
    "allreduce",
    "allreduce",
    "group",
    "allgather",
    "broadcast",
    "reducescatter",
    "alltoall",
    "reduce",
    "gather",
    "scatter",
    "scan",
    "exscan",
    "barrier",
)
CHANGING = ("allreduce", "group", "broadcast", "reduce", "scan", "exscan")
"""Kinds with a form that works in place."""


def patience() -> float:
    """Return the limit of a wait in seconds, which ends a hang: a minute, more if other processes have the cores."""
    return 60 * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


KNOBS: dict[str, tuple[Any, ...]] = {
    "fusion_threshold": (0, 1000, 1 << 16, 16 << 20),
    "cache_capacity": (0, 1, 7, 2048),
    "raise_window": (0.0, 1e-4, 2e-3),
    "raise_bytes": (0, 1 << 12, 4 << 20),
    "chunk_bytes": (0, 64, 4096, 1 << 16),
    "fanout": (1, 2, 16),
    "rails": (0, 1, 2),
    "algorithm": ("auto", "direct", "stages", "ring"),
    "deterministic": (False, True),
    "background": (False, True, True),
    "debug": (False, False, True),
    "single_copy": (True, True, False),
    "stores": ("auto", "plain", "stream"),
}


def knobs(seed: int) -> dict[str, Any]:
    """Return the settings of a program: small values, so that many code paths run."""
    chance = random.Random(f"knobs {seed}")
    return {name: chance.choice(values) for name, values in KNOBS.items()}


@dataclass(frozen=True)
class Where:
    """A kind of memory for arrays, with copies to it and back."""

    put: Callable[[Array], Any]
    get: Callable[[Any], Array]


HOST = Where(put=lambda x: x, get=lambda x: x)


@dataclass(frozen=True)
class Request:
    """A request of all members of a set."""

    number: tuple[int, int, int]
    """Seed, round, place in the round."""
    kind: str
    set: int
    name: str | None
    dtype: str
    rows: int
    width: int
    op: hpccoll.Reduction
    root: int
    liar: int | None
    """The member that gives one column more."""
    away: bool
    """Its arrays are in the other memory, where there is one."""

    def values(self, rank: int, part: int = 0) -> Array:
        """Return this member's values: small integers, so that every dtype holds every result exactly."""
        rows = self.rows + (rank if self.kind in ("allgather", "gather") else 0)
        top = 3 if self.op == hpccoll.PRODUCT else 5
        own = np.random.default_rng([*self.number, rank, part])
        return own.integers(1, top, (rows, self.width)).astype(self.dtype)

    def given(self, rank: int, part: int = 0) -> Array:
        """Return this member's input."""
        x = self.values(rank, part)
        return np.concatenate([x, x[:, :1]], axis=1) if self.liar == rank else x

    def splits(self, rank: int, size: int) -> list[int]:
        """Rows that this member sends to each."""
        own = random.Random(f"{self.number} {rank}")
        return [own.randrange(0, 1 + self.rows) if self.rows < 101 else self.rows // size for _ in range(size)]


@dataclass
class Pending:
    """A request of this rank in flight, with the expected result."""

    request: Request
    handle: hpccoll.Handle
    check: Callable[[Any], None]
    inputs: list[tuple[Any, Array]]
    """The input, and a copy of it."""
    where: Where


def requests(seed: int, number: int, sizes: list[int]) -> list[Request]:
    """Return the requests of a round; `sizes` are the numbers of members of the sets."""
    chance = random.Random(f"round {seed} {number}")
    result = []
    for i in range(chance.randrange(1, 25)):
        kind, chosen = chance.choice(KINDS), chance.randrange(len(sizes))
        lies = (
            kind in ("allreduce", "broadcast", "reducescatter", "reduce", "scan")
            and sizes[chosen] > 1
            and chance.random() < 0.04
        )
        dtype = chance.choice(DTYPES)
        named = lies or chance.random() < 0.7
        result.append(
            Request(
                number=(seed, number, i),
                kind=kind,
                set=chosen,
                # The same names every round: hits, and signatures that change.
                name=f"{kind} {i}" if named else None,
                dtype=dtype,
                rows=chance.choice(ROWS),
                width=chance.randrange(1, 3),
                op=chance.choice(list(REDUCTIONS)),
                root=chance.randrange(sizes[chosen]),
                liar=chance.randrange(sizes[chosen]) if lies else None,
                away=chance.random() < 0.7,
            )
        )
    return result


def expected(request: Request, size: int, me: int, part: int = 0) -> Array | None:
    """Return the expected result on this member; None: there is none, or it is an exscan on rank 0."""
    all_of_them = [request.values(rank, part) for rank in range(size)]
    if request.kind in ("reduce", "gather") and me != request.root:
        return None
    if request.kind in ("allgather", "gather"):
        return np.concatenate(all_of_them)
    if request.kind == "scatter":
        return np.array_split(all_of_them[request.root], size)[me]
    if request.kind in ("scan", "exscan"):
        all_of_them = all_of_them[: me + (request.kind == "scan")]
        if not all_of_them:
            return None
    if request.kind == "broadcast":
        return all_of_them[request.root]
    total: Array = REDUCTIONS[request.op](all_of_them, axis=0, dtype=request.dtype)
    return np.array_split(total, size)[me] if request.kind == "reducescatter" else total


def check_equal(request: Request, result: Any, wanted: Array | None) -> None:
    if wanted is None:
        assert request.kind == "exscan" or result is None, request
        return
    came, due = (result.dtype, result.shape), (wanted.dtype, wanted.shape)
    assert came == due, (request, came, due)
    assert (result == wanted).all(), request


def enqueue(request: Request, world: World, where: Where, in_place: bool) -> Pending:
    """Enqueue the request on this rank."""
    size, me, kind = world.size, world.rank, request.kind
    if kind == "alltoall":
        return enqueue_alltoall(request, world, where)
    values = [request.given(me, part) for part in range(3 if kind == "group" else 1)]
    given = [where.put(x.copy()) for x in values]
    x, out = given[0], given[0] if in_place else None
    begins: dict[str, Callable[..., hpccoll.Handle]] = {
        "reduce": partial(world.reduce_async, x, op=request.op, root=request.root, out=out),
        "gather": partial(world.gather_async, x, request.root),
        "scatter": partial(world.scatter_async, x, request.root),
        "broadcast": partial(world.broadcast_async, x, request.root, out=out),
        "allreduce": partial(world.allreduce_async, x, request.op, out=out),
        "group": partial(world.allreduce_async, given, request.op, out=given if in_place else None),
        "scan": partial(world.scan_async, x, request.op, out=out),
        "exscan": partial(world.exscan_async, x, request.op, out=out),
        "allgather": partial(world.allgather_async, x),
        "reducescatter": partial(world.reducescatter_async, x, request.op),
        "barrier": world.barrier_async,
    }
    handle = begins[kind](name=request.name)

    def check(result: Any) -> None:
        results = {"barrier": [], "group": result}.get(kind, [result])
        for part, one in enumerate(results):
            check_equal(request, where.get(one), expected(request, size, me, part))

    changes = in_place and kind in CHANGING and request.liar is None
    return Pending(request, handle, check, [] if changes else list(zip(given, values, strict=True)), where)


def enqueue_alltoall(request: Request, world: World, where: Where) -> Pending:
    ranks, me = range(world.size), world.rank
    splits = [request.splits(r, world.size) for r in ranks]

    def part(sender: int, receiver: int) -> Array:
        one = np.full((splits[sender][receiver], request.width), sender * world.size + receiver)
        return one.astype(request.dtype)

    def check(result: Any) -> None:
        received, rows = result
        check_equal(request, where.get(received), np.concatenate([part(r, me) for r in ranks]))
        assert list(rows) == [splits[r][me] for r in ranks], request

    values = np.concatenate([part(me, r) for r in ranks])
    x = where.put(values.copy())
    handle = world.alltoall_async(x, splits[me], name=request.name)
    return Pending(request, handle, check, [(x, values)], where)


RING = 99
"""The tag of messages that are plans."""


class Plans:
    """Plans of one set, large and small, each with its own memory."""

    def __init__(self, seed: int, world: World) -> None:
        chance = random.Random(f"plans {seed}")
        self.seed, self.world, self.root = seed, world, chance.randrange(world.size)
        self.arrays = [np.zeros(n, np.int64) for n in (1, chance.choice((2, 300)), chance.choice((0, 9000)))]
        self.plans = [world.allreduce_init(x, out=x) for x in self.arrays]
        self.given, self.gathered = np.zeros(3, np.int64), np.zeros(world.rank, np.int64)
        self.plans.append(world.broadcast_init(self.given, self.root))
        self.plans.append(world.allgather_init(self.gathered))
        self.plans.append(world.barrier_init())
        self.right, self.left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        self.sent, self.come = (np.zeros(n, np.int64) for n in [chance.choice((1, 500, 5000))] * 2)
        self.ring = [
            world.recv_init(self.come, self.left, tag=RING),
            world.send_init(self.sent, self.right, tag=RING),
        ]

    def start(self, number: int, own: random.Random) -> list[Callable[[], None]]:
        """Start the plans of a round; return functions that wait for each and check it."""
        chance = random.Random(f"starts {self.seed} {number}")
        chosen = chance.sample(range(len(self.plans)), chance.randrange(len(self.plans) + 1))
        for x in (*self.arrays, self.given, self.gathered):
            x[:] = self.world.rank + number
        self.sent[:] = self.world.rank + number
        for plan in own.sample([*self.ring, *(self.plans[at] for at in chosen)], len(chosen) + 2):
            plan.start()
        ends = [partial(self.check, at, number, own.random() < 0.3) for at in chosen]
        return [*ends, partial(self.check_ring, number, own.random() < 0.3)]

    def check_ring(self, number: int, asks: bool) -> None:
        if asks:
            self.ring[0].test()
        assert [plan.wait(patience()) for plan in self.ring] == [self.left, None]
        assert (self.come == self.left + number).all(), (number, self.come)

    def check(self, at: int, number: int, asks: bool) -> None:
        if asks:
            self.plans[at].test()
        result, size = self.plans[at].wait(patience()), self.world.size
        total = size * (size - 1) // 2 + size * number
        wanted = {3: [self.root + number] * 3, 4: [r + number for r in range(size) for _ in range(r)], 5: None}
        if at < len(self.arrays):
            assert (result == total).all(), (at, number, result)
        else:
            assert (result is None) if wanted[at] is None else (list(result) == wanted[at]), (at, number, result)

    def free(self) -> None:
        for plan in (*self.plans, *self.ring):
            plan.free()


class Rank:
    """This rank's part of a program.

    :param sets: the World, and those process sets of it that this rank is in (None: it is not)
    :param away: the other memory
    """

    def __init__(self, seed: int, world: World, sets: list[World | None], sizes: list[int], away: Where) -> None:
        self.seed, self.world, self.sets, self.sizes, self.away = seed, world, sets, sizes, away
        self.own = random.Random(f"rank {world.rank} of {seed}")
        self.plans = [Plans(seed, member) for member in sets if member]
        self.done = 0

    def order(self, asked: list[Request]) -> list[Request]:
        """Shuffle the named requests; keep the order of those without a name, which match by it."""
        shuffled = self.own.sample(asked, len(asked))
        unnamed = iter([request for request in asked if request.name is None])
        return [request if request.name else next(unnamed) for request in shuffled]

    def pause(self) -> None:
        if self.own.random() < 0.1:
            time.sleep(self.own.choice((0, 1e-4, 3e-3)))

    def go_away(self) -> None:
        """Make no call for a while, although the other ranks go on."""
        if self.own.random() < 0.1:
            time.sleep(self.own.choice((1e-3, 5e-2)))

    def round(self, number: int) -> None:
        messages = self.messages(number)
        for plans in self.own.sample(self.plans, len(self.plans)):
            messages += plans.start(number, self.own)
        self.own.shuffle(messages)
        pending = []
        for request in self.order(requests(self.seed, number, self.sizes)):
            self.pause()
            if member := self.sets[request.set]:
                where = self.away if request.away else HOST
                pending.append(enqueue(request, member, where, self.own.random() < 0.5))
        self.own.shuffle(pending)
        texts = {p.request.number: text for p in pending if (text := self.finish(p))}
        for check in messages:
            check()
        self.go_away()
        self.relay(number)
        self.go_away()
        self.calls(number)
        self.compare(texts)
        self.done += len(pending)

    def finish(self, pending: Pending) -> str | None:
        """Wait for a request and check it; return the text of an expected error."""
        if self.own.random() < 0.2:
            pending.handle.done()
        text = None
        try:
            pending.check(pending.handle.wait(patience()))
            assert pending.request.liar is None, f"{pending.request} should have failed"
        except errors.MismatchError as error:
            assert pending.request.liar is not None, pending.request
            text = str(error)
        for given, copy in pending.inputs:
            assert (pending.where.get(given) == copy).all(), f"{pending.request}: an input was changed"
        return text

    def compare(self, texts: dict[tuple[int, int, int], str]) -> None:
        """Check that every rank got the same text for each failed request."""
        said: dict[tuple[int, int, int], str] = {}
        for rank, others in enumerate(self.world.allgather_object(texts, name="texts")):
            for number, text in others.items():
                assert said.setdefault(number, text) == text, (rank, said[number], text)

    def messages(self, number: int) -> list[Callable[[], object]]:
        """Send messages to the next rank and receive those of the one before; return functions that wait and check."""
        chance = random.Random(f"messages {self.seed} {number}")
        lengths = [chance.choice((0, 1, 500, 9000, 70_000)) for _ in range(chance.randrange(0, 4))]
        size, me = self.world.size, self.world.rank
        checks: list[Callable[[], object]] = []

        def receiver(x: Array, handle: hpccoll.Handle, value: int) -> Callable[[], object]:
            def check() -> None:
                assert handle.wait(patience()) == (me - 1) % size
                assert (x == value).all(), (number, value)

            return check

        for i, length in enumerate(lengths):
            x = np.empty(length, np.int64)
            value = number * 1000 + i
            handle = self.world.recv_async(x, (me - 1) % size, tag=i)
            checks.append(receiver(x, handle, value))
            given = np.full(length, value)
            checks.append(self.world.send_async(given, (me + 1) % size, tag=i).wait)
        return checks

    def relay(self, number: int) -> None:
        """Pass messages from rank to rank; a sender may stop calling as soon as its message is sent."""
        chance = random.Random(f"relay {self.seed} {number}")
        sizes = [chance.choice((1, 1000, 7000, 8191, 8192)) for _ in range(chance.randrange(0, 12))]
        size, me = self.world.size, self.world.rank
        for place, nbytes in enumerate(sizes):
            if me > 0:
                x = np.empty(nbytes, np.uint8)
                assert self.world.recv(x, me - 1, tag=7) == me - 1
                assert (x == place).all(), (number, place, nbytes)
            if me < size - 1:
                self.world.send(np.full(nbytes, place, np.uint8), me + 1, tag=7)

    def calls(self, number: int) -> None:
        """Make blocking calls without a name, mostly small: they need no agreement if the ranks come together."""
        chance = random.Random(f"calls {self.seed} {number}")
        for i in range(chance.randrange(0, 12)):
            chosen, length, first = chance.randrange(len(self.sizes)), chance.choice((0, 1, 100, 3000)), chance.random()
            kind, world = chance.choice(("allreduce", "broadcast", "allgather", "scan", "barrier")), self.sets[chosen]
            if not world:
                continue
            self.pause()
            root, x = int(first * world.size), np.full(length, world.rank + i)
            due = {"allreduce": sum(range(world.size)) + world.size * i, "broadcast": root + i}
            due["scan"] = sum(range(world.rank + 1)) + (world.rank + 1) * i
            if kind == "barrier":
                world.barrier()
                continue
            result = world.broadcast(x, root) if kind == "broadcast" else getattr(world, kind)(x)
            wanted = np.repeat(np.arange(world.size) + i, length) if kind == "allgather" else np.full(length, due[kind])
            assert result.tolist() == wanted.tolist(), (number, i, kind, chosen, length)

    def join(self) -> None:
        """Let ranks with fewer steps join; the sums of the others are over the ranks that have not joined."""
        chance = random.Random(f"join {self.seed}")
        steps = [chance.randrange(0, 6) for _ in range(self.world.size)]
        for step in range(steps[self.world.rank]):
            self.pause()
            x = self.world.allreduce(np.full(100, self.world.rank + 1), name=f"step {step}")
            assert (x == sum(r + 1 for r, n in enumerate(steps) if n > step)).all(), (steps, step)
        last = self.world.join()
        assert len(set(self.world.allgather_object(last))) == 1


def run(world: World, seed: int, rounds: int, away: Where = HOST) -> int:
    """Run a program on this rank; return the number of its requests."""
    chance = random.Random(f"sets {seed}")
    members = [sorted(chance.sample(range(world.size), chance.randrange(1, world.size + 1))) for _ in range(2)]
    sets = [world, *(world.subset(ranks) for ranks in members)]
    rank = Rank(seed, world, sets, [world.size, *map(len, members)], away)
    for number in range(rounds):
        rank.round(number)
    rank.join()
    for plans in rank.plans:
        plans.free()
    for member in sets[1:]:
        member.shutdown()
    return rank.done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--rounds", type=int, default=20, help="of a program")
    options = parser.parse_args()
    began, done = time.monotonic(), 0
    for seed in itertools.count(options.seed):
        with World(verbose=0, **knobs(seed)) as world:
            done += run(world, seed, options.rounds)
            late = max(world.allgather_object(time.monotonic() - began)) > options.seconds
            first = world.rank == 0
        if first:
            print(f"program {seed}: {knobs(seed)}", file=sys.stderr, flush=True)
        if late:
            break
    if first:
        print(f"{seed - options.seed + 1} programs, {done} requests on rank 0")


if __name__ == "__main__":
    main()
