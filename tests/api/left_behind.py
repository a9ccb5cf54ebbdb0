# SPDX-License-Identifier: Apache-2.0
"""Checks that a call leaves nothing behind: when it has returned, the rank may stop calling, and no other rank waits.

This is one rank of a job of `test_left_behind.py`. In each round all ranks make the same calls. One of them, the
sleeper, makes no call of hpccoll after its own calls have returned until all others have finished: it sleeps, or is in
a barrier of the program's own MPI. It measures how long the others still take. An operation that only the background
thread moves on takes an eighth of a second on average, and without a thread for ever. The median of a few rounds
distinguishes this from a round that a loaded machine delays. Between rounds the ranks wait for each other through a
file, without hpccoll.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

LATE = 0.03
"""Seconds: a quarter of the mean wait for the idle thread."""
NEVER = 3.0
ROUNDS = 5
SIZES = (0, 1, 1000, 4096, 7999, 8000, 8064, 8191, 8192, 8193, 12 << 10, 64 << 10, 1 << 20)
COUNTS = (1, 3, 20)
FEW = ((0, 1), (1000, 20), (7000, 3), (8000, 1), (8192, 1), (8192, 3), (8193, 1), (1 << 20, 1))
"""Sizes and counts of the short form."""
Array = np.ndarray[Any, Any]
Part = Callable[[], object]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("board", help="a file of zeros, 8 bytes per rank")
    parser.add_argument("--thread-level", default="multiple")
    parser.add_argument("--pause", choices=["sleep", "mpi"], default="sleep")
    parser.add_argument("--all", action="store_true", help="every size and count, every rank sleeps")
    return parser.parse_args()


given = options()
if given.pause == "mpi" or given.thread_level != "multiple":
    import mpi4py

    mpi4py.rc.thread_level = given.thread_level
    from mpi4py import MPI

import hpccoll  # noqa: E402

hpccoll.init()
rank, size = hpccoll.rank(), hpccoll.size()
said: Array = np.memmap(given.board, np.int64, "r+", shape=(size,))


# ---- what the ranks do ------------------------------------------------------------------------------------


@cache
def arrays(nbytes: int, count: int, which: str) -> list[Array]:
    return [np.zeros(nbytes, np.uint8) for _ in range(count)]


@cache
def plans(init: Callable[..., hpccoll.Plan], nbytes: int, count: int, peer: int, which: str) -> list[hpccoll.Plan]:
    return [init(x, peer) for x in arrays(nbytes, count, which)]


def wait_all(handles: list[hpccoll.Handle]) -> None:
    for handle in handles:
        handle.wait()


def send(form: str, xs: list[Array], to: int) -> None:
    for number, x in enumerate(xs):
        x[:] = number + 1
    if form == "async":
        wait_all([hpccoll.send_async(x, to) for x in xs])
    elif form == "plan":
        for plan in plans(hpccoll.send_init, xs[0].nbytes, len(xs), to, "given"):
            plan()
    elif form == "object":
        for x in xs:
            hpccoll.send_object(x, to)
    else:
        for x in xs:
            hpccoll.send(x, to)


def receive(form: str, xs: list[Array], source: int) -> None:
    for x in xs:
        x[:] = 0
    if form == "async":
        wait_all([hpccoll.recv_async(x, source) for x in xs])
    elif form == "plan":
        for plan in plans(hpccoll.recv_init, xs[0].nbytes, len(xs), source, "taken"):
            plan()
    elif form == "object":
        xs = [hpccoll.recv_object(source) for _ in xs]
    else:
        for x in xs:
            if form == "probe":
                assert hpccoll.probe(source).nbytes == x.nbytes
            hpccoll.recv(x, source)
    assert all((x == number + 1).all() for number, x in enumerate(xs)), (form, xs[0].nbytes)


def message(form: str, nbytes: int, count: int, gives: bool, sleeper: int) -> Part | None:
    """Make messages from the sleeper to the next rank, or in the other direction."""
    other = (sleeper + 1) % size
    sender, receiver = (sleeper, other) if gives else (other, sleeper)
    if rank == sender:
        return partial(send, form, arrays(nbytes, count, "given"), receiver)
    return partial(receive, form, arrays(nbytes, count, "taken"), sender) if rank == receiver else None


def around(nbytes: int, count: int, sleeper: int) -> Part:
    """Make messages from every rank to the next one."""
    xs, outs = arrays(nbytes, count, "given"), arrays(nbytes, count, "taken")

    def exchange() -> None:
        for x, out in zip(xs, outs, strict=True):
            x[:] = rank
            hpccoll.sendrecv(x, (rank + 1) % size, out=out, source=(rank - 1) % size)
            assert (out == (rank - 1) % size).all()

    return exchange


def collective(operation: str, form: str, nbytes: int, count: int, own_root: bool, sleeper: int) -> Part:
    x = np.ones((size, max(1, nbytes // 8 // size)))
    root = sleeper if own_root else (sleeper + 1) % size
    arguments: list[Any] = [] if operation == "barrier" else [x]
    options = {"root": root} if operation in ROOTED else {}
    if form == "async":
        call = getattr(hpccoll, f"{operation}_async")
        return lambda: wait_all([call(*arguments, **options, name=f"{operation} {i}") for i in range(count)])
    if form == "plan":
        plan = plan_of(operation, nbytes, root if operation in ROOTED else None)
        return lambda: [plan() for _ in range(count)]
    if form == "group":
        arguments[0] = [x, x[:1]]
    call = getattr(hpccoll, operation)
    return lambda: [call(*arguments, **options) for _ in range(count)]


@cache
def plan_of(operation: str, nbytes: int, root: int | None) -> hpccoll.Plan:
    x = np.ones((size, max(1, nbytes // 8 // size)))
    arguments: list[Any] = [] if operation == "barrier" else [x]
    plan: hpccoll.Plan = getattr(hpccoll, f"{operation}_init")(*arguments, **({} if root is None else {"root": root}))
    return plan


ROOTED = ("broadcast", "reduce", "gather", "scatter", "broadcast_object")
EVEN = ("allreduce", "allgather", "alltoall", "reducescatter", "scan", "exscan", "barrier")


def cases() -> Iterator[tuple[str, Callable[[int], Part | None]]]:
    """Yield the cases: a name, and a function from the sleeper to this rank's part."""
    few: tuple[tuple[int, int], ...] = FEW
    if given.all:  # but for what takes long to copy
        few = tuple((nbytes, count) for nbytes, count in itertools.product(SIZES, COUNTS) if nbytes * count < 4 << 20)
    case: Callable[[int], Part | None]
    for form, (nbytes, count) in itertools.product(("blocking", "async", "plan", "object", "probe"), few):
        for gives in (True, False):
            case = partial(message, form, nbytes, count, gives)
            yield f"{form}, {count} x {nbytes} bytes, {'sends' if gives else 'receives'}", case
    for nbytes, count in few:
        yield f"sendrecv, {count} x {nbytes} bytes", partial(around, nbytes, count)
    sizes = [(nbytes, count) for nbytes, count in few if count != 3] if given.all else [(1000, 3), (1 << 20, 1)]
    for operation, (nbytes, count) in itertools.product(ROOTED + EVEN, sizes):
        forms = ["blocking"] if operation == "broadcast_object" else ["blocking", "async", "plan"]
        forms += ["group"] * (operation == "allreduce")
        for form, own_root in itertools.product(forms, (True, False) if operation in ROOTED else (True,)):
            case = partial(collective, operation, form, nbytes, count, own_root)
            yield f"{operation}, {form}, {count} x {nbytes} bytes, root {own_root}", case


# ---- rounds -----------------------------------------------------------------------------------------------


def until(number: int, seconds: float) -> bool:
    """Sleep until all ranks have written this number; return False if that takes too long."""
    limit = time.monotonic() + seconds
    while (said < number).any():
        if time.monotonic() > limit:
            return False
        time.sleep(0.0003)
    return True


def rescue() -> None:
    """Finish the operations that were left behind, so that the other cases can run."""
    hpccoll.recv_async(np.zeros(1), rank, tag=7).done()
    hpccoll.send(np.zeros(1), rank, tag=7)


def through(number: int) -> bool:
    """Wait on the sleeper until all others have finished; return whether they have in time."""
    said[rank] = number
    if given.pause == "sleep":
        return until(number, NEVER)
    barrier = MPI.COMM_WORLD.Ibarrier()
    limit = time.monotonic() + NEVER
    while not barrier.Test():
        assert time.monotonic() < limit + 60, "the others are not through"
        if time.monotonic() > limit:
            rescue()
        time.sleep(0.0001)
    return time.monotonic() < limit


def play(part: Part | None, sleeps: bool, number: int) -> float:
    """Play a round; return how long the sleeper waited for the others."""
    assert until(number, 60)
    if part:
        part()
    begun = time.monotonic()
    if sleeps:
        in_time = through(number + 1)
        took = time.monotonic() - begun if in_time else NEVER
        while not until(number + 1, 0.01):
            rescue()
        said[rank] = number + 2
        return took
    said[rank] = number + 1
    if given.pause == "mpi":
        MPI.COMM_WORLD.Ibarrier().Wait()  # a blocking one would not match
    assert until(number + 1, 60)
    said[rank] = number + 2
    return 0.0


def main() -> int:
    number, wrong = 0, []
    sleepers = range(size) if given.all else {0, size - 1}
    for (name, case), sleeper in itertools.product(cases(), sleepers):
        took = []
        for _ in range(ROUNDS):
            took.append(play(case(sleeper), rank == sleeper, number))
            number += 2
            said[rank] = max(said[rank], number)
        if rank == sleeper and statistics.median(took) > LATE:
            wrong.append(name)
            print(f"rank {rank} slept: {name}: {' '.join(f'{s * 1e3:.0f}' for s in took)} ms", flush=True)
    print(f"rank {rank}: {number // 2} rounds, {len(wrong)} left behind", flush=True)
    hpccoll.shutdown()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
