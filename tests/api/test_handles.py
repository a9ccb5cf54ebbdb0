# SPDX-License-Identifier: Apache-2.0
"""Asynchronous calls: order, waiting, timeouts, await, dropping, threads."""

import asyncio
import contextlib
import gc
import random
import re
import threading
import warnings

import numpy as np
import pytest
from test_jobs import INIT, job

import hpccoll
from hpccoll import testing, wait_all
from hpccoll.net import Drivers


def in_four_threads(work):
    """work(0) to work(3) at once; none of them fails."""
    failures = []

    def run(thread):
        try:
            work(thread)
        except BaseException as error:
            failures.append(error)
            raise

    workers = [threading.Thread(target=run, args=(t,)) for t in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_any_order_of_names(everywhere):
    def program(world):
        names = [f"tensor {i}" for i in range(100)]
        for step in range(3):
            mixed = random.Random(world.rank * 10 + step).sample(names, len(names))
            handles = {n: world.allreduce_async(np.full(10, float(n.split()[1])), name=n) for n in mixed}
            for n in random.Random(world.rank + 77).sample(names, len(names)):
                assert (handles[n].wait() == float(n.split()[1]) * world.size).all()

    everywhere(program)


def test_wait_may_be_repeated_and_done_follows(everywhere):
    def program(world):
        handle = world.allgather_async(np.arange(3), name="g")
        first = handle.wait()
        assert handle.done()
        assert handle.wait() is first

    everywhere(program)


def test_rows_are_not_there_before_the_end(threads):
    """They were what the memory held before."""

    def program(world):
        handle = world.allgather_async(np.ones(1 + world.rank), name="uneven") if world.rank == 0 else None
        if handle:
            with pytest.raises(hpccoll.InvalidArgumentError, match="'uneven' is not finished, so it has no rows"):
                handle.rows()
        world.barrier()
        handle = handle or world.allgather_async(np.ones(1 + world.rank), name="uneven")
        handle.wait()
        assert handle.rows().tolist() == [1, 2]
        handle = world.allgather_async(np.ones((1, 1 + world.rank)), name="wrong")
        with pytest.raises(hpccoll.MismatchError):
            handle.wait()
        with pytest.raises(hpccoll.InvalidArgumentError, match="'wrong' has failed, so it has no rows"):
            handle.rows()

    testing.run(threads(2), program)


def test_one_wait_for_many(everywhere):
    """Ranks submit and list them in different orders; a handle that is done already, or listed twice, does no harm."""

    def program(world):
        assert wait_all([]) == []
        for step in range(3):
            mixed = random.Random(world.rank * 10 + step).sample(range(60), 60)
            handles = {i: world.allreduce_async(np.full(10, float(i)), name=f"many {i}") for i in mixed}
            handles[7].wait()
            results = wait_all([handles[7], *handles.values()])
            assert all(handle.done() for handle in handles.values())
            for i, result in zip([7, *handles], results, strict=True):
                assert (result == i * world.size).all()

    everywhere(program)


@pytest.mark.parametrize("nodes", ["3", "2+1"])
def test_many_of_which_some_fail(threads, nodes):
    """A wrong argument leaves what was submitted before and after it alone; what went wrong, each handle tells."""

    def program(world):
        def submit(i, n=4):
            return world.allreduce_async(np.ones(n, np.float32), name=f"some {i}")

        handles = [submit(i) for i in range(4)]
        with pytest.raises(hpccoll.UnsupportedError, match="float16 is for float32"):
            world.allreduce_async(np.ones(3, np.int32), name="wrong", compression=hpccoll.compression.FP16)
        handles += [submit(4, 4 + world.rank), submit(2), submit(5)]
        with pytest.raises(hpccoll.MismatchError, match="some 4"):  # the first of the two, when all are over
            wait_all(handles)
        assert all(handle.done() for handle in handles)
        wrong = {}
        for at, handle in enumerate(handles):
            try:
                assert (handle.wait() == world.size).all()
            except hpccoll.HpccollError as error:
                wrong[at] = type(error), str(error)
        assert {at: kind for at, (kind, _) in wrong.items()} == {
            4: hpccoll.MismatchError, 5: hpccoll.DuplicateNameError
        }  # fmt: skip
        assert "some 4" in wrong[4][1]
        assert "some 2" in wrong[5][1]
        return wrong[4][1]

    # nothing is agreed before it is waited for, so that the second "some 2" meets the first
    knobs = {"nodes": nodes} if "+" in nodes else {}
    assert len(set(testing.run(threads(3, raise_window=5.0, **knobs), program))) == 1


def test_one_wait_for_handles_and_plans(everywhere):
    def program(world):
        x = np.full(3, float(world.rank))
        with world.allreduce_init(x, hpccoll.MAX) as plan, world.barrier_init() as idle:
            handle = world.allgather_async(x[:1])
            plan.start()
            greatest, rows, nothing = wait_all([plan, handle, idle])
            assert (greatest == world.size - 1).all()
            assert rows.tolist() == list(range(world.size))
            assert nothing is None
            assert not plan.active

    everywhere(program)


@pytest.mark.parametrize("nodes", ["2", "1+1"])
def test_one_wait_for_handles_of_several_worlds(nodes):
    """The ranks list them in different orders, and no thread drives but those that wait."""

    def program(first, other):
        handles = [w.allreduce_async(np.full(2, at)) for at, w in enumerate([first, other], start=1)]
        if first.rank:
            handles.reverse()
        assert [int(result[0]) for result in wait_all(handles)] == ([4, 2] if first.rank else [2, 4])

    knobs = {"nodes": nodes, "drivers": Drivers.CALLERS} if "+" in nodes else {}
    worlds = [testing.threads(2, **knobs) for _ in range(2)]
    others = dict(zip(worlds[0], worlds[1], strict=True))
    testing.run(worlds[0], lambda world: program(world, others[world]))
    for those in worlds:
        testing.run(those, hpccoll.World.shutdown)


def test_threads_wait_for_many(everywhere):
    """Each for its own; one of them drives for all."""

    def program(world):
        def work(thread):
            for step in range(20):
                handles = [world.allreduce_async(np.full(50, float(i + step)), name=f"{thread}.{i}") for i in range(8)]
                wait_all(handles)
                for i, handle in enumerate(handles):
                    assert handle.done()
                    assert (handle.wait() == (i + step) * world.size).all()

        in_four_threads(work)

    everywhere(program)


def test_what_is_no_handle_is_refused(threads):
    (world,) = threads(1)
    handle = world.allreduce_async(np.ones(2), name="a")
    with pytest.raises(TypeError, match="Handle"):
        wait_all([handle, "b"])
    assert handle.wait().tolist() == [1.0, 1.0]


def test_a_handle_outlives_its_timeout(threads):
    def program(world):
        if world.rank == 0:
            handle = world.allreduce_async(np.ones(5), name="late")
            for _ in range(2):
                with pytest.raises(TimeoutError, match="late"):
                    handle.wait(timeout=0.02)
            assert not handle.done()
            world.barrier()
            return handle.wait(timeout=30).tolist()
        world.barrier()
        return world.allreduce(np.ones(5), name="late").tolist()

    assert testing.run(threads(3, nodes="2+1"), program) == [[3.0] * 5] * 3


def test_await(everywhere):
    async def one(world, i):
        return float((await world.allreduce_async(np.array([float(i)]), name=f"a{i}"))[0])

    async def many(world):
        return await asyncio.gather(*(one(world, i) for i in range(20)))

    everywhere(lambda world: [i * world.size for i in range(20)] == asyncio.run(many(world)) or pytest.fail("sums"))


@pytest.mark.parametrize("background", [True, False])
def test_await_drives(threads, background):
    async def program(world):
        return float((await world.allreduce_async(np.ones(2), name="x"))[0])

    worlds = threads(3, nodes="2+1", background=background)
    assert testing.run(worlds, lambda world: asyncio.run(program(world))) == [3.0] * 3


def test_a_dropped_handle_keeps_its_arrays(everywhere):
    def program(world):
        for i in range(200):
            world.allreduce_async(np.full(5000, float(i)), name=f"dropped {i}")
        gc.collect()
        assert world.allreduce(np.ones(1), name="after")[0] == world.size

    everywhere(program)


def test_unnamed_calls_hit_the_cache_and_their_counter_restarts(threads):
    def program(world):
        for _ in range(6):
            handles = [world.allreduce_async(np.ones(4)) for _ in range(3)]
            for handle in handles:
                handle.wait()
        world.allreduce_async(np.ones(4)).wait()  # a blocking one may be counted
        return world.stats()

    for stats in testing.run(threads(2), program):
        assert stats["cached_commits"] == 13
        assert stats["first_commits"] == 6  # the numbers of every other step are odd


def test_ranks_that_wait_at_other_calls_mix_none_of_them_up():
    """MPI matches these calls by their order. Here the numbers begin anew on rank 0 alone."""
    script = INIT + (
        "def begin(value): return hpccoll.allreduce_async(np.full(3, value))\n"
        "a = begin(1.0)\n"
        "if rank == 0: a.wait()\n"
        "b = begin(10.0)\n"
        "if rank == 1: a.wait(), b.wait()\n"
        "c = begin(100.0)\n"
        "print('sums', a.wait()[0], b.wait()[0], c.wait()[0], flush=True)\n"
    )
    code, output = job(2, script, stall_limit=20)
    assert code == 0
    assert re.findall(r"sums .*", output) == ["sums 2.0 20.0 200.0"] * 2


def call_without_a_name(world, i, x):
    """Begin the i-th call of a program. Returns a handle, or None if it is done, and the sum that it must give."""
    total = np.full_like(x, x[0] * world.size)
    if i % 5 == 3:
        assert (world.allreduce(x) == total).all()  # blocks
        return None, total
    if i % 7 == 4:
        gathered = world.allgather_async(x)
        return gathered, np.tile(x, world.size)
    return world.allreduce_async(x), total


def wait_where_it_likes(world, calls, seed):
    """MPI's standard, 6.12 and 3.7: the order of the calls matches them; each process completes them as it likes."""
    mine, begun, late = random.Random(seed * 100 + world.rank), [], 0
    for i in range(calls):
        handle, expected = call_without_a_name(world, i, np.full(8 * (1 + i % 3), float(i + 1)))
        if handle:
            begun.append((handle, expected))
        while begun and mine.random() < (0.2 + 0.6 * (world.rank % 2)):
            handle, expected = begun.pop(mine.randrange(len(begun)))
            np.testing.assert_array_equal(handle.wait(), expected)
            late += 1
    for handle, expected in begun:
        np.testing.assert_array_equal(handle.wait(), expected)
    return late


@pytest.mark.parametrize("seed", range(3))
def test_each_rank_waits_where_it_likes(everywhere, seed):
    everywhere(lambda world: wait_where_it_likes(world, 60, seed))


def test_a_rank_waits_elsewhere_and_another_refuses(everywhere):
    """The refused call uses up its place in the order, under whatever name the others know it."""

    def program(world):
        first = world.allreduce_async(np.ones(3))
        if world.rank == 0:
            first.wait()
        second = world.allreduce_async(np.ones(3))
        if world.rank == 0:
            with pytest.raises(hpccoll.ResultSizeError):
                world.allreduce_async(np.ones(3), out=np.ones(4))
        else:
            with pytest.raises(hpccoll.MismatchError, match=r"rank 0 .*has refused this call"):
                world.allreduce_async(np.ones(3)).wait()
        assert (first.wait() == world.size).all()
        assert (second.wait() == world.size).all()
        assert (world.allreduce(np.full(3, 2.0)) == 2.0 * world.size).all()

    everywhere(program)


def test_a_rank_waits_elsewhere_and_joins(everywhere):
    """The join comes after the rank's calls: it gives its values to them, under whatever name it knows them."""

    def program(world):
        first = world.allreduce_async(np.ones(3))
        if world.rank == 0:
            first.wait()
        second = world.allreduce_async(np.ones(3))
        if world.rank != 0:
            third = world.allreduce_async(np.ones(3))
            assert (third.wait() == world.size - 1).all()
        world.join()
        assert (first.wait() == world.size).all()
        assert (second.wait() == world.size).all()
        assert (world.allreduce(np.full(3, 2.0)) == 2.0 * world.size).all()

    everywhere(program)


def test_threads_of_one_rank(everywhere):
    def program(world):
        def work(thread):
            for i in range(50):
                x = np.full(100, float(i))
                assert (world.allreduce(x, name=f"{thread}") == i * world.size).all()

        in_four_threads(work)

    everywhere(program)


def test_unnamed_calls_of_two_threads_are_refused(threads):
    (world,) = threads(1)
    other = threads(2)[0]
    handle = other.allreduce_async(np.ones(1))
    caught = []

    def second():
        with pytest.raises(hpccoll.InvalidArgumentError, match="must be named") as error:
            other.allreduce(np.ones(1))
        caught.append(error)
        world.allreduce(np.ones(1))

    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    assert caught
    assert not handle.done()


@pytest.mark.parametrize("drivers", Drivers)
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_whatever_threads_may_drive_there_is_progress(threads, drivers, nodes):
    def program(world):
        assert world.base.loop.background == (drivers is Drivers.ANY or nodes == "1")
        for i in range(30):
            handles = [world.allreduce_async(np.full(1000, i), name=f"{n}") for n in range(5)]
            assert all((h.wait() == i * 2).all() for h in handles)
        handle = world.allreduce_async(np.ones(3), name="polled")
        while not handle.done():
            world.progress()
        return handle.wait().tolist()

    # a thread makes its rank's World, so that it may drive it
    assert testing.make_and_run(2, program, drivers=drivers, nodes=nodes) == [[2.0] * 3] * 2


def test_the_debug_mode_sees_a_changed_input(threads):
    def program(world):
        x = np.ones(1000)
        handle = world.allreduce_async(x, name="changed")
        if world.rank == 1:
            x[500] = 2
        world.barrier()
        if world.rank == 1:
            with pytest.raises(hpccoll.InvalidArgumentError, match="changed"):
                handle.wait()
        else:
            handle.wait()
        return world.allreduce(np.ones(2), name="goes on").tolist()

    knobs = {"debug": True, "raise_window": 5.0, "background": False}
    assert testing.run(threads(2, **knobs), program) == [[2.0, 2.0]] * 2


def test_a_background_thread_finishes_what_nobody_waits_for(threads):
    def program(world):
        handle = world.allreduce_async(np.ones(4), name="x")
        event = threading.Event()
        for _ in range(12000):
            if handle.done():
                return True
            event.wait(0.005)
        return False

    assert all(testing.run(threads(4, nodes="2+2"), program))


def test_blocking_calls_never_call_the_background_thread(threads):
    def program(world):
        world.allreduce(np.ones(4))
        before = world.stats()["wakes"]
        for _ in range(200):
            world.allreduce(np.ones(4))
        return world.stats()["wakes"] - before

    # There are 400 calls; a thread that the system stops as it leaves may find more to do, and not stay for it.
    assert sum(testing.run(threads(2), program)) < 100


def begin_wrong(world, name):
    return world.allreduce_async(np.ones(2 + (world.rank == 1)), name=name)


@contextlib.contextmanager
def lost_errors():
    """Collect the warnings of errors of dropped handles."""
    texts = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield texts
    texts += [str(one.message) for one in seen]
    assert all("error: MismatchError: allreduce 'lost': rank 0 has float64[2] SUM" in text for text in texts), texts


@pytest.mark.parametrize("when", ["before it fails", "after it has failed"])
def test_the_error_of_a_dropped_handle_is_told_once(everywhere, when):
    """As asyncio tells that of a task. An error that a wait has raised is told already."""

    def program(world):
        told = begin_wrong(world, "told")
        with pytest.raises(hpccoll.MismatchError) if world.size > 1 else contextlib.nullcontext():
            told.wait()
        del told
        lost = begin_wrong(world, "lost")
        while when == "after it has failed" and not lost.done():
            pass
        del lost
        for _ in range(3):
            world.barrier()
        return world.size > 1

    with lost_errors() as texts:
        expected = sum(everywhere(program))
    assert len(texts) == expected


def test_the_error_of_a_handle_that_is_dropped_last_is_told_at_the_end(threads):
    def program(world):
        begin_wrong(world, "lost")
        world.shutdown()

    with lost_errors() as texts:
        testing.run(threads(2), program)
    assert len(texts) == 2


def test_many_errors_of_dropped_handles_are_told_in_part(threads):
    def program(world):
        kept = [begin_wrong(world, f"lost' {i}") for i in range(50)]
        while not all(handle.done() for handle in kept):
            pass
        kept.clear()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        testing.run(threads(2), program)
    texts = [str(one.message) for one in seen]
    assert [len(texts), sum("(later ones are not reported)" in text for text in texts)] == [16, 2]
