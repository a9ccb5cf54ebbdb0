# SPDX-License-Identifier: Apache-2.0
"""Blocking calls of few bytes without a name: ranks need no agreement, or agree in the engine."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import numpy as np
import pytest

import hpccoll
from hpccoll import errors, testing

pytestmark = pytest.mark.timeout(200)


def on_one_node(world: hpccoll.World) -> bool:
    return len({world.base.loop.node_of[member] for member in world.core.members}) == 1


def until_short(world: hpccoll.World, check: Callable[[], None], *, votes: bool = False) -> None:
    """Repeat what makes one unnamed call until it took the shortcut, which all ranks see in the same turn.

    Ranks that are threads of one interpreter may always come too late for each other.

    :param votes: the nodes of a World vote on this call
    """
    are_processes = threading.current_thread() is threading.main_thread()
    for _ in range(3000 if are_processes else 2):  # other processes may disturb hundreds of calls in a row
        before = world.stats()["shortcuts"]
        check()
        if world.stats()["shortcuts"] > before or not (votes or on_one_node(world)):
            return
    assert not are_processes, "it never took the shortcut"


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "?"])
def test_results_are_those_of_named_calls(everywhere, dtype):
    def program(world):
        root, own = world.size - 1, np.random.default_rng(world.rank)
        before = world.stats()["shortcuts"]
        for shape in ((), (1,), (3, 5), (1, 2, 3, 4), (64,)):
            x = np.asarray(own.standard_normal(shape) * 50).astype(dtype)
            ops = [hpccoll.SUM, hpccoll.AVERAGE, hpccoll.MAX, hpccoll.PRODUCT, hpccoll.LAND]
            for op in ops[2:] if dtype == "?" else ops:
                wanted = world.allreduce(x, op, name="named")
                assert np.array_equal(world.allreduce(x, op), wanted, equal_nan=True)
                out, wanted = np.empty_like(x), world.reduce(x, op=op, root=root, name="named reduce")
                result = world.reduce(x, op=op, root=root, out=out)
                assert result is (out if world.rank == root else None)
                assert world.rank != root or np.array_equal(out, wanted, equal_nan=True)
            wanted = world.broadcast(x, root, name="named")
            assert np.array_equal(world.broadcast(x, root), wanted)
            if dtype == "f8":
                wanted = world.allreduce(x, name="named", prescale=0.5, postscale=3.0)
                world.allreduce(x, out=x, prescale=0.5, postscale=3.0)
                assert np.array_equal(x, wanted)
            world.barrier()
        taken = world.stats()["shortcuts"] - before
        assert taken > 0 or world.size > 1  # ranks that share cores may come too late for each other

    everywhere(program)


@pytest.mark.parametrize(
    ("dtype", "columns"), [("f8", 300), *((dtype, 3) for dtype in ("f8", "f4", "f2", "i1", "u8", "c8", "?"))]
)
def test_prefixes_and_shares_have_the_bits_of_named_calls(everywhere, dtype, columns):
    def program(world):
        own = np.random.default_rng(world.rank)
        x = np.asarray(own.standard_normal((2 * world.size + 1, columns)) * 50).astype(dtype)
        ops = [hpccoll.SUM, hpccoll.PRODUCT, hpccoll.MAX, hpccoll.LXOR, hpccoll.AVERAGE]
        ops = {"c8": ops[:2], "?": ops[1:4]}.get(dtype, ops)

        def check(operation: str, wanted: np.ndarray, replaces: bool, **more: Any) -> None:
            given = x.copy()
            result = getattr(world, operation)(given, out=given if replaces else None, **more)
            assert result.dtype == dtype and result.shape == wanted.shape and result.tobytes() == wanted.tobytes()

        with np.errstate(all="ignore"):
            for op in ops:
                factors = {"prescale": 0.3, "postscale": 3.0} if op == hpccoll.SUM and dtype in ("f8", "f2") else {}
                for operation in ("scan", "exscan", "reducescatter")[2 * (op == hpccoll.AVERAGE) :]:
                    wanted = getattr(world, operation)(x, op, name=operation, **factors)
                    until_short(world, partial(check, operation, wanted, replaces=False, op=op, **factors))
                    if operation != "reducescatter":
                        until_short(world, partial(check, operation, wanted, replaces=True, op=op, **factors))

    everywhere(program)


@pytest.mark.parametrize(
    ("dtype", "columns"), [("f8", 300), *((dtype, 3) for dtype in ("f8", "f2", "i1", "u8", "c8", "?"))]
)
def test_rows_are_where_numpy_puts_them(everywhere, dtype, columns):
    """Rank r has r rows, so rank 0 has none; and each rank sends (its number + the receiver's) % 3 rows."""

    def rows_of(rank: int, rows: int, dtype: str) -> np.ndarray:
        return np.random.default_rng(rank).integers(0, 2 if dtype == "?" else 100, (rows, columns)).astype(dtype)

    def program(world):
        me, size, root = world.rank, world.size, world.size - 1
        mine, table = rows_of(me, me, dtype), np.concatenate([rows_of(rank, rank, dtype) for rank in range(size)])
        whole, splits = (
            rows_of(root, 3 * size - 1, dtype),
            [[(rank + to) % 3 for to in range(size)] for rank in range(size)],
        )
        sent = [rows_of(rank, sum(splits[rank]), dtype) for rank in range(size)]
        even = [rows_of(rank, size, dtype) for rank in range(size)]
        uneven = [3] * (size - 1) + [2]
        cases = {
            "allgather": (lambda out: world.allgather(mine, out=out), table),
            "gather": (lambda out: world.gather(mine, root, out=out), table if me == root else None),
            "scatter": (
                lambda out: world.scatter(whole if me == root or out is None else None, root, out=out),
                np.array_split(whole, size)[me],
            ),
            "scatter of splits": (
                lambda out: world.scatter(whole, root, uneven if me == root else None, out=out),
                np.split(whole, np.cumsum(uneven)[:-1])[me],
            ),
            "alltoall": (lambda out: world.alltoall(even[me], out=out), np.stack([x[me] for x in even])),
            "alltoall of splits": (
                lambda out: world.alltoall(sent[me], splits[me], out=out),
                np.concatenate([np.split(x, np.cumsum(s)[:-1])[me] for x, s in zip(sent, splits, strict=True)]),
            ),
        }
        rows = {"alltoall": [1] * size, "alltoall of splits": splits[me]}

        def check(what: str, out: np.ndarray | None) -> None:
            call, wanted = cases[what]
            result = call(out)
            if what in rows:
                result, from_each = result
                assert from_each.dtype == np.int64 and from_each.tolist() == rows[what]
            if wanted is None:
                assert result is None
                return
            assert out is None or result is out
            assert result.dtype == dtype and result.shape == wanted.shape and (result == wanted).all()

        for what, (_, wanted) in cases.items():
            until_short(world, partial(check, what, None))
            until_short(world, partial(check, what, None if wanted is None else np.empty_like(wanted)))
        until_short(world, lambda: check_equal(world.allgather(np.array(me, dtype)), np.arange(size).astype(dtype)))

    everywhere(program)


def test_nodes_vote_on_calls_that_gather(everywhere):
    def program(world):
        me, size, root = world.rank, world.size, world.size - 1
        x, ones = np.arange(3.0 * size) + me, np.ones(size)
        rows = [np.full(rank + 1, rank) for rank in range(size)]
        splits = [rank % 2 + 1 for rank in range(size)]

        def check(result: Any, wanted: Any) -> None:
            if wanted is None:
                assert result is None
            else:
                check_equal(result, wanted)

        cases = [
            lambda: check(world.allgather(rows[me]), np.concatenate(rows)),
            lambda: check(world.gather(rows[me], root), np.concatenate(rows) if me == root else None),
            lambda: check(world.scatter(x, root), np.arange(3.0) + 3 * me + root),
            lambda: check(world.alltoall(x)[0], np.concatenate([np.arange(3.0) + 3 * me + r for r in range(size)])),
            lambda: check(world.alltoall(np.ones(sum(splits)), splits)[1], np.full(size, splits[me])),
            lambda: check(world.alltoall(x, out=np.empty_like(x))[1], np.full(size, 3)),
            lambda: check(world.scan(ones), np.full(size, me + 1.0)),
            lambda: check(world.exscan(ones, out=ones.copy()), np.full(size, float(me))),
        ]
        for case in cases:
            until_short(world, case, votes=True)

    everywhere(program)


@pytest.mark.parametrize("excess", [0, 1])
def test_what_fits_into_votes(threads, excess):
    """The votes hold 4 KiB in all: 2 KiB per rank, of which a head takes 16 bytes; one rank publishes 1 KiB."""

    def program(world):
        for most in (1024, 2032):
            mine = np.full(most + excess if world.rank else 1, world.rank, np.uint8)
            for _ in range(20):
                check_equal(world.allgather(mine), np.array([0] + [1] * (most + excess), np.uint8))
        world.barrier()

    testing.run(threads(2, nodes="1+1"), program)


def check_equal(result: np.ndarray, wanted: np.ndarray) -> None:
    assert result.dtype == wanted.dtype and result.shape == wanted.shape and (result == wanted).all()


@pytest.mark.parametrize("large", [1, 4000], ids=["small", "large on one rank"])
def test_parts_of_any_size(threads, large):
    """Only rank 0 knows its rows: no rank waits for the others in vain, and later calls take the shortcut."""

    def program(world):
        rows = [large, 1, 2]
        wanted = np.concatenate([np.full((n, 2), rank) for rank, n in enumerate(rows)])
        for _ in range(20):
            mine = np.full((rows[world.rank], 2), world.rank)
            check_equal(world.allgather(mine), wanted)
            result = world.gather(mine, 1)
            assert (result is None) == (world.rank != 1)
            check_equal(wanted if result is None else result, wanted)
            x = np.arange(9 * large) if world.rank == 0 else np.empty(0, int)
            check_equal(world.scatter(x, 0), np.arange(3 * large) + 3 * large * world.rank)
            check_equal(world.alltoall(x, [3 * large] * 3 if world.rank == 0 else [0] * 3)[0], world.scatter(x, 0))
        until_short(world, world.barrier)

    testing.run(threads(3), program)


@pytest.mark.parametrize("ranks", [2, 3])
def test_large_parts_take_places_in_turn(threads, ranks):
    """43,648 and 262,144 bytes are the largest parts of 3 ranks and of 2."""

    def program(world):
        for call, size in enumerate([8192, 8193, 262144, 12000, 43648, 65536, 40001, 100_000] * 6):
            parts = [np.arange(size, dtype=np.uint8) * (2 * rank + 1) + np.uint8(call) for rank in range(ranks)]
            check_equal(world.allgather(parts[world.rank][None]), np.stack(parts))
            check_equal(world.broadcast(parts[world.rank], call % ranks), parts[call % ranks])

    testing.run(threads(ranks), program)


@pytest.mark.parametrize("operation", ["allgather", "gather", "scatter", "alltoall"])
def test_an_out_of_wrong_rows_is_one_error_on_all_ranks(everywhere, operation):
    def program(world):
        size, root = world.size, world.size - 1
        x, rooted = np.ones((size, 2)), {"root": root} if operation in ("gather", "scatter") else {}
        rows = {"scatter": 1, "alltoall": size}.get(operation, size * size)

        def call(rows: int) -> np.ndarray:
            out = np.full((rows, 2), 7.0)
            try:
                getattr(world, operation)(x, out=out, **rooted)
            except errors.ResultSizeError as error:
                assert (out == 7).all()
                assert len(set(world.allgather_object(str(error)))) == 1
                raise
            return out

        for wrong in (1, -1, 1):
            with pytest.raises(errors.ResultSizeError):
                call(rows + wrong if world.rank == root else rows)
            gets = operation != "gather" or world.rank == root
            until_short(world, lambda: check_equal(call(rows), np.full((rows, 2), 1.0 if gets else 7.0)))  # noqa: B023

    everywhere(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda rank, world: world.allgather(np.ones((1, 2 + rank))),
        lambda rank, world: world.allgather(np.ones(2, "f4" if rank else "f8")),
        lambda rank, world: world.allgather(np.ones((900 * rank + 1, 1 + rank))),  # one of them too large
        lambda rank, world: world.gather(np.ones(2), rank),
        lambda rank, world: world.scatter(np.ones(2), rank),
        lambda rank, world: world.scatter(np.ones(2 + 9000 * rank, "f4" if rank else "i4"), 1),
        lambda rank, world: world.alltoall(np.ones((2, 1 + rank))),
        lambda rank, world: world.alltoall(np.ones(2)) if rank else world.allgather(np.ones(2)),
        lambda rank, world: world.reducescatter(np.ones(2 + rank)),
        lambda rank, world: world.scan(np.ones(2), hpccoll.MAX if rank else hpccoll.MIN),
        lambda rank, world: world.scan(np.ones(2)) if rank else world.exscan(np.ones(2)),
        lambda rank, world: world.allreduce(np.ones(2 + rank)),
        lambda rank, world: world.allreduce(np.ones((2, 1 + rank)[rank:])),
        lambda rank, world: world.allreduce(np.ones(2, "f4" if rank else "f8")),
        lambda rank, world: world.allreduce(np.ones(2), hpccoll.MAX if rank else hpccoll.MIN),
        lambda rank, world: world.allreduce(np.ones(2), prescale=1.0 + rank),
        lambda rank, world: world.allreduce(np.ones(2 + 9000 * rank)),  # too large on one
        lambda rank, world: world.broadcast(np.ones(2), rank),
        lambda rank, world: world.reduce(np.ones(2), root=rank),
        lambda rank, world: world.barrier() if rank else world.broadcast(np.ones(1)),
        lambda rank, world: world.allgather(np.ones(1)) if rank else world.barrier(),
    ],
)
@pytest.mark.parametrize("nodes", ["", "1+1"])
def test_ranks_that_disagree(threads, call, nodes):
    def program(world):
        words = []
        for _ in range(3):
            x = np.full(3, world.rank + 1.0)
            with pytest.raises(errors.MismatchError) as raised:
                call(world.rank, world)
            words.append(str(raised.value))
            assert (world.allreduce(x, out=x) == 3).all()
            world.barrier()
        return words

    assert len(set(map(tuple, testing.run(threads(2, nodes=nodes), program)))) == 1


@pytest.mark.parametrize("nodes", ["", "2+1", "1+1+1"])
def test_they_come_together_again(threads, nodes):
    """After one was late, after an asynchronous call on one rank, and after a join."""

    def program(world):
        x, me = np.ones(3), world.rank

        def is_short() -> bool:
            before = world.stats()["shortcuts"]
            for _ in range(200):
                assert (world.allreduce(x) == 3).all()
            return world.stats()["shortcuts"] > before

        assert is_short()
        for k in range(3):
            if me == k:
                time.sleep(0.01)
                assert (world.allreduce_async(x).wait() == 3).all()
            else:
                assert (world.allreduce(x) == 3).all()
        assert is_short()
        for _ in range(me):
            total = world.allreduce(np.ones(2))
            assert (total <= 2).all()
        assert world.join() == 2
        assert is_short()

    testing.run(threads(3, nodes=nodes), program)


@pytest.mark.parametrize("nodes", ["", "1+1"])
def test_a_call_from_another_thread_is_refused_meanwhile(threads, nodes):
    """A rank that waits for the others has an unnamed call in flight, by either way."""
    worlds = threads(2, nodes=nodes)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(worlds[0].barrier) for _ in range(2)]
        (refused,), (waits,) = wait(calls, timeout=60, return_when=FIRST_COMPLETED)
        with pytest.raises(errors.InvalidArgumentError, match="another thread"):
            refused.result()
        worlds[1].barrier()
        waits.result(60)


@pytest.mark.parametrize("nodes", ["", "1+1"])
def test_a_rank_does_not_come(threads, nodes):
    given_up = threading.Event()

    def program(world):
        if world.rank == 0:
            with pytest.raises(errors.StallError, match="rank 1"):
                world.allreduce(np.ones(1))
            given_up.set()
        else:
            assert given_up.wait(60)
            with pytest.raises(errors.RecoverableError):
                world.barrier()

    worlds = threads(2, nodes=nodes, stall_warning=0.2, stall_limit=0.8)
    testing.run(worlds, program)


@pytest.mark.parametrize("nodes", ["1+1", "2+1"])
def test_named_calls_run_beside_one_between_nodes(threads, nodes):
    """Ranks come to an unnamed call with requests under way, or to those first; a call of few bytes never waits for
    the order of the others.
    """

    def program(world):
        size, me = world.size, world.rank
        for turn in range(60):
            work = [world.allreduce_async(np.full(5000, k + me), name=f"{k}") for k in range(turn % 3)]
            if (turn + me) % 2 and turn % 4 > 1:
                for k, handle in enumerate(work):
                    assert (handle.wait() == size * k + size * (size - 1) / 2).all()
                work = []
            assert (world.allreduce(np.full(3, turn + me)) == size * turn + size * (size - 1) / 2).all()
            assert world.broadcast(np.full(2, me), turn % size).tolist() == [turn % size] * 2
            for k, handle in enumerate(work):
                assert (handle.wait() == size * k + size * (size - 1) / 2).all()
        before = world.stats()["shortcuts"]
        for _ in range(200):
            world.barrier()
        assert world.stats()["shortcuts"] > before

    testing.run(threads(sum(map(int, nodes.split("+"))), nodes=nodes), program)
