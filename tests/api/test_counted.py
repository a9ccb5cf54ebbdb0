# SPDX-License-Identifier: Apache-2.0
"""Blocking calls without a name that no shortcut holds: the ranks agree by their count, or in the engine."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

import hpccoll
from hpccoll import errors, testing

pytestmark = pytest.mark.timeout(200)
MANY = 80_000
"""float64: 640 KB; per rank, so that two ranks have too much for a shortcut in float16, too."""


def until_counted(world: hpccoll.World, check: Callable[[], None]) -> None:
    """Repeat what makes one unnamed call until the ranks have counted it, which all see in the same turn.

    Ranks that are threads of one interpreter may always come too late for each other.
    """
    are_processes = threading.current_thread() is threading.main_thread()
    for _ in range(3000 if are_processes else 2):
        world.barrier()  # the ranks of a scan end one after the other, and so begin the next one
        before = world.stats()["counted"]
        check()
        if world.stats()["counted"] > before or world.size == 1:
            return
    assert not are_processes, "they never counted it"


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4"])
def test_results_are_those_of_named_calls(everywhere, dtype):
    def program(world):
        own, root = np.random.default_rng(world.rank), world.size - 1
        x = np.asarray(own.standard_normal((MANY // 4 * world.size, 4)) * 5).astype(dtype)
        wanted = {
            "allreduce": world.allreduce(x, name="sum"),
            "broadcast": world.broadcast(x, root, name="broadcast"),
            "allgather": world.allgather(x, name="allgather"),
            "reducescatter": world.reducescatter(x, name="reducescatter"),
            "scan": world.scan(x, name="scan"),
        }

        def check(name: str, *arguments: int) -> None:
            result = getattr(world, name)(x, *arguments)
            assert np.array_equal(result, wanted[name])

        for name in wanted:
            until_counted(world, lambda name=name: check(name, *[root] * (name == "broadcast")))

    everywhere(program)


def test_groups(everywhere):
    """Those of one dtype are counted, those of several are not."""

    def program(world):
        alike = [np.full(MANY, k + world.rank) for k in range(3)]
        mixed = [np.full(MANY, k + world.rank, dtype) for k, dtype in enumerate(["i4", "f8", "i4"])]

        def check(xs: list[np.ndarray]) -> None:
            for k, result in enumerate(world.allreduce(xs)):
                assert result.dtype == xs[k].dtype
                assert (result == world.size * k + world.size * (world.size - 1) / 2).all()

        until_counted(world, lambda: check(alike))
        check(mixed)

    everywhere(program)


def test_rows_of_any_number(everywhere):
    """A rank with few rows tries the shortcut, and one with many counts its request: they agree in the engine."""

    def program(world):
        rows = [7, MANY, 0, MANY + 3]
        for turn in range(8):
            mine = rows[(turn + world.rank) % 4] if turn % 2 else MANY + world.rank
            x = np.full(mine, world.rank)
            result = world.allgather(x)
            counts = [rows[(turn + r) % 4] if turn % 2 else MANY + r for r in range(world.size)]
            assert np.array_equal(result, np.repeat(np.arange(world.size), counts))

    everywhere(program)


def test_each_is_a_batch_in_the_statistics(everywhere):
    def program(world):
        before = world.stats()
        until_counted(world, lambda: world.allreduce(np.ones(MANY)))
        batches, requests = (world.stats()[name] - before[name] for name in ("batches", "fused_requests"))
        assert batches == requests > 0

    everywhere(program)


def equal_rows(world: hpccoll.World) -> dict[str, tuple[Callable[[], object], Callable[[object], bool]]]:
    """What gives equally many rows to all, and a check of this rank's result."""
    rank, size, root, n = world.rank, world.size, world.size - 1, MANY // 2
    block, mine = np.arange(n * size).reshape(size, n), np.arange(n * rank, n * (rank + 1)) * 3
    few = n // 2  # a rank that learns from the root how many rows it gets has 256 KiB ready
    given, part, out = np.arange(few * size), np.arange(few * rank, few * (rank + 1)), np.empty(few, np.int64)
    return {
        "allgather": (lambda: world.allgather(mine), lambda y: np.array_equal(y, np.arange(n * size) * 3)),
        "gather": (
            lambda: world.gather(mine, root),
            lambda y: y is None if rank < root else np.array_equal(y, np.arange(n * size) * 3),
        ),
        "scatter": (
            lambda: world.scatter(given if rank == root else given[:0], root),
            lambda y: np.array_equal(y, part),
        ),
        "scatter to out": (lambda: world.scatter(given, root, out=out), lambda y: y is out and (y == part).all()),
        "alltoall": (
            lambda: world.alltoall(np.ravel(block + rank)),
            lambda y: np.array_equal(y[0], np.ravel([block[rank] + r for r in range(size)])),
        ),
    }


def test_equal_rows(everywhere):
    def program(world):
        for make, is_right in equal_rows(world).values():

            def check(make=make, is_right=is_right) -> None:
                assert is_right(make())

            check()
            check()
            until_counted(world, check)

    everywhere(program)


def messages_of(name: str, nodes: list[int]) -> int:
    """The messages of data between nodes for equal rows, if no count travels: leaders gather, others send directly."""
    places = range(len(nodes))
    far = [(a, b) for a in places for b in places if nodes[a] != nodes[b]]
    if name == "allgather":
        return len(set(nodes)) * (len(set(nodes)) - 1)
    return len(far) if name == "alltoall" else sum(b == places[-1] for _, b in far)


@pytest.mark.parametrize("everywhere", [pytest.param("mpi", marks=pytest.mark.mpi(min_size=1))], indirect=True)
def test_equal_rows_need_no_counts(everywhere):
    def program(world):
        nodes = world.allgather_object(world.cross_rank)
        for name, (make, _) in equal_rows(world).items():
            sent = list[int]()

            def check(make=make, sent=sent) -> None:
                before = world.stats()
                make()
                after = world.stats()
                sent[:] = [after[k] - before[k] for k in ("net_sent_messages", "control_messages_net")]

            check()
            check()
            until_counted(world, check)
            data = sum(world.allgather_object(sent[0] - sent[1]))
            assert data == messages_of(name, nodes), name

    everywhere(program)


def test_a_difference_is_named_on_all_ranks(everywhere):
    def program(world):
        if world.size == 1:
            return
        for turn in range(6):
            x = np.zeros(MANY + (world.rank == turn % world.size))
            with pytest.raises(errors.MismatchError, match=rf"\({MANY}|\({MANY + 1}|{MANY}"):
                world.allreduce(x)
            assert (world.allreduce(np.ones(MANY)) == world.size).all()
        with pytest.raises(errors.MismatchError, match="reduction differs"):
            world.allreduce(np.zeros(MANY), hpccoll.MAX if world.rank else hpccoll.SUM)
        assert (world.allreduce(np.ones(MANY)) == world.size).all()

    everywhere(program)


@pytest.mark.parametrize("nodes", ["", "2+1"])
def test_beside_named_calls_of_other_threads(threads, nodes):
    """The batches of both have one order on all ranks. tests/loop/counted.c has more of this."""

    def program(world):
        over = threading.Event()
        failed = list[BaseException]()

        def beside() -> None:
            try:
                is_over, turn = False, 0
                while not is_over:
                    ended = world.allreduce_async(np.array([over.is_set()], np.int64), hpccoll.MIN, name="over")
                    result = world.allreduce(np.full(3000, turn + world.rank), name="beside")
                    assert (result == world.size * turn + world.size * (world.size - 1) / 2).all()
                    is_over, turn = bool(ended.wait()[0]), turn + 1
            except BaseException as error:  # noqa: BLE001 - the other thread raises it
                failed.append(error)

        second = threading.Thread(target=beside)
        second.start()
        for turn in range(150):
            result = world.allreduce(np.full(MANY, turn + world.rank))
            assert (result == world.size * turn + world.size * (world.size - 1) / 2).all()
        over.set()
        second.join()
        assert not failed, failed

    testing.run(threads(3, nodes=nodes), program)
