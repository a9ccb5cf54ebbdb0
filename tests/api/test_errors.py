# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is one clear error, and the World goes on."""

import contextlib
import re
import threading
import time

import numpy as np
import pytest

import hpccoll
from hpccoll import _core, errors, testing


def test_every_status_has_its_class():
    names = [exception for code, _, _, exception in _core.STATUSES if code]
    assert len(set(names)) == len(names) > 10
    for name in names:
        assert issubclass(getattr(hpccoll, name), hpccoll.HpccollError)
    of_python = {"HpccollError", "MembersChangedError", "NotDefinedError", "ObjectError", "RankError"}
    of_python |= {"RecoverableError", "StartError"}
    assert set(errors.__all__) == set(names) | of_python


def still_works(world):
    assert world.allreduce(np.ones(3)).tolist() == [world.size] * 3


ARGUMENTS = {
    "bad root": (hpccoll.InvalidArgumentError, lambda w: w.broadcast(np.ones(2), w.size)),
    "negative root": (hpccoll.InvalidArgumentError, lambda w: w.broadcast(np.ones(2), -1)),
    "splits": (hpccoll.InvalidArgumentError, lambda w: w.alltoall(np.ones(5), [1] * w.size + [0])),
    "splits sum": (hpccoll.InvalidArgumentError, lambda w: w.alltoall(np.ones(50), [1] * w.size)),
    "op": (hpccoll.InvalidArgumentError, lambda w: w.allreduce(np.ones(2), "sum")),
    "number of an op": (hpccoll.InvalidArgumentError, lambda w: w.allreduce(np.ones(2), 99)),
    "dtype": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.array(["a"]))),
    "long double": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ones(2, np.longdouble))),
    "byte order": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ones(2, ">f4"))),
    "object": (hpccoll.UnsupportedError, lambda w: w.allreduce(object())),
    "mean of bool": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ones(2, "?"), hpccoll.AVERAGE)),
    "bits of a float": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ones(2), hpccoll.BAND)),
    "scaled MIN": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ones(2), hpccoll.MIN, prescale=2)),
    "scaled int": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ones(2, int), postscale=0.5)),
    "compressed int": (
        hpccoll.UnsupportedError,
        lambda w: w.allreduce(np.ones(2, int), compression=hpccoll.compression.FP16),
    ),
    "compression": (hpccoll.InvalidArgumentError, lambda w: w.allreduce(np.ones(2), compression="fp16")),
    "out shape": (hpccoll.ResultSizeError, lambda w: w.allreduce(np.ones(2), out=np.ones(3))),
    "out dtype": (hpccoll.InvalidArgumentError, lambda w: w.allreduce(np.ones(2), out=np.ones(2, int))),
    "empty group": (hpccoll.InvalidArgumentError, lambda w: w.allreduce([])),
    "empty name": (hpccoll.InvalidArgumentError, lambda w: w.allreduce(np.ones(2), name="")),
    "scattered scalar": (hpccoll.InvalidArgumentError, lambda w: w.reducescatter(np.float32(1))),
    "rows of two lengths": (hpccoll.UnsupportedError, lambda w: w.allgather([np.ones(2), np.ones(3)])),
    "mask": (hpccoll.UnsupportedError, lambda w: w.allreduce(np.ma.array([1.0, 2.0], mask=[0, 1]))),
}  # fmt: skip


@pytest.mark.parametrize("case", ARGUMENTS)
def test_wrong_arguments_are_refused_here(everywhere, case):
    error, call = ARGUMENTS[case]

    def program(world):
        with pytest.raises(error):
            call(world)
        still_works(world)

    everywhere(program)


NAMED = {
    "op is 1.5": lambda w: w.allreduce(np.ones(2), 1.5),
    "op is 1099511627776": lambda w: w.allreduce(np.ones(2), 1 << 40),
    "prescale is 'two'": lambda w: w.allreduce(np.ones(2), prescale="two"),
    "postscale is None": lambda w: w.reducescatter(np.ones(2), postscale=None),
    "root is 0.5": lambda w: w.broadcast(np.ones(2), 0.5),
    "splits is not": lambda w: w.alltoall(np.ones(2 * w.size), [2.5] * w.size),
    "name is 3": lambda w: w.barrier(name=3),
    "name is 'half": lambda w: w.barrier(name="half a pair \ud800"),
    "name is 'nnn.* 4098 bytes": lambda w: w.barrier(name="n" * 4098),
    "x .* is read-only": lambda w: w.recv(b"12345678"),
}


@pytest.mark.parametrize("words", NAMED)
def test_what_is_wrong_is_named(everywhere, words):
    def program(world):
        with pytest.raises(hpccoll.InvalidArgumentError, match=words):
            NAMED[words](world)
        still_works(world)

    everywhere(program)


def test_a_name_may_be_any_kind_of_string(everywhere):
    class Layer(str):
        pass

    def program(world):
        for name in (Layer("x"), np.str_("y"), "層" * 1365, "a\0b"):
            assert world.allreduce(np.ones(1), name=name)[0] == world.size

    everywhere(program)


@pytest.mark.parametrize("timeout", ["soon", float("nan"), 1j])
def test_a_timeout_is_a_number(everywhere, timeout):
    def program(world):
        handle = world.allreduce_async(np.ones(1))
        with pytest.raises(hpccoll.InvalidArgumentError, match="timeout is"):
            handle.wait(timeout)
        assert handle.wait(float("inf"))[0] == world.size  # and endless, if it likes

    everywhere(program)


def test_a_handle_comes_from_an_operation():
    with pytest.raises(TypeError, match="allreduce_async"):
        hpccoll.Handle()


def test_an_output_lies_alone_in_its_group(everywhere):
    def program(world):
        a, b, c = np.ones(4), np.full(4, 2.0), np.zeros(8)
        for x, out in (
            ([a, b], [c[:4], c[3:7]]),
            ([a, b], [b, a]),
            ([a, a], [a, a]),
            ([b, c[1:5]], [c[:4], a]),
        ):
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"array [01] of the group shares memory"):
                world.allreduce(x, out=out)
        assert [x[0] for x in world.allreduce([a, a, b], out=[c[4:], c[:4], b])] == [
            world.size, world.size, 2 * world.size,
        ]  # fmt: skip
        still_works(world)

    everywhere(program)


def test_what_pickle_refuses_is_refused_on_all_ranks(everywhere):
    def program(world):
        last = world.size - 1
        mine = threading.Lock() if world.rank == last else "sound"
        for call in (
            lambda: world.allgather_object(mine),
            lambda: world.broadcast_object(mine, last),
        ):
            with pytest.raises(hpccoll.ObjectError, match=f"rank {last} has a lock that pickle refuses"):
                call()
        still_works(world)

    everywhere(program)


def test_read_only_and_overlapping_outputs_are_refused(everywhere):
    def program(world):
        fixed = np.ones(4)
        fixed.flags.writeable = False
        with pytest.raises(hpccoll.InvalidArgumentError, match="read-only"):
            world.allreduce(np.ones(4), out=fixed)
        buffer = np.ones(8)
        with pytest.raises(hpccoll.InvalidArgumentError, match="overlaps"):
            world.allreduce(buffer[:4], out=buffer[2:6])
        still_works(world)

    everywhere(program)


DISAGREEMENTS = {
    "shape": lambda w: w.allreduce(np.ones(3 + (w.rank == 1)), name="x"),
    "dtype": lambda w: w.allreduce(np.ones(3, [np.float64, np.int64][w.rank == 1]), name="x"),
    "operation": lambda w: w.allgather(np.ones(3), name="x") if w.rank == 1 else w.allreduce(np.ones(3), name="x"),
    "reduction": lambda w: w.allreduce(np.ones(3), [hpccoll.SUM, hpccoll.MAX][w.rank == 1], name="x"),
    "root": lambda w: w.broadcast(np.ones(3), int(w.rank == 1), name="x"),
    "root of an object": lambda w: w.broadcast_object(w.rank, int(w.rank == 1), name="x"),
    "root of an object, which no rank is": lambda w: w.broadcast_object(w.rank, int(w.rank != 1), name="x"),
    "factor": lambda w: w.allreduce(np.ones(3), prescale=1.0 + (w.rank == 1), name="x"),
    "rows": lambda w: w.allgather(np.ones((2, 3 + (w.rank == 1))), name="x"),
}


@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_a_mismatch_is_the_same_error_everywhere(everywhere, case):
    def program(world):
        if world.size == 1:
            return None
        with pytest.raises(hpccoll.MismatchError) as caught:
            DISAGREEMENTS[case](world)
        text = str(caught.value)
        assert "x" in text
        assert len(set(world.allgather_object(text))) == 1
        still_works(world)
        return text

    everywhere(program)


def test_a_mismatch_touches_no_buffer(everywhere):
    def program(world):
        if world.size == 1:
            return
        x, out = np.full(4 + world.rank, 7.0), np.full(4 + world.rank, 5.0)
        with pytest.raises(hpccoll.MismatchError):
            world.allreduce(x, name="cached or not", out=out)
        assert (x == 7).all()
        assert (out == 5).all()

    everywhere(program)


def test_unnamed_calls_mismatch_too(everywhere):
    def program(world):
        if world.size > 1:
            with pytest.raises(hpccoll.MismatchError):
                world.allreduce(np.ones(2 + world.rank))
        still_works(world)

    everywhere(program)


def test_a_name_in_flight_is_taken(everywhere):
    def program(world):
        if world.rank > 0:
            first = world.allreduce_async(np.ones(2), name="twice")
            with pytest.raises(hpccoll.DuplicateNameError, match="twice"):
                world.allreduce(np.ones(2), name="twice")
            world.barrier()
            assert first.wait().tolist() == [world.size] * 2
        else:
            world.barrier()  # nobody can finish "twice" before rank 0 has asked for it
            assert world.allreduce(np.ones(2), name="twice").tolist() == [world.size] * 2
        still_works(world)

    everywhere(program)


def test_calls_after_shutdown(threads):
    worlds = threads(2)
    testing.run(worlds, hpccoll.World.shutdown)

    def program(world):
        for call in (world.allreduce, world.allgather, world.broadcast_async):
            with pytest.raises(hpccoll.ShutDownError):
                call(np.ones(2))
        for call in (world.subset, world.cart, world.shared_array, world.allgather_object):
            with pytest.raises(hpccoll.ShutDownError):
                call([1])
        with pytest.raises(hpccoll.ShutDownError):
            world.split(0)
        with pytest.raises(hpccoll.ShutDownError):
            world.stats()
        world.shutdown()

    testing.run(worlds, program)


def test_an_end_at_once_ends_what_was_not_agreed(threads):
    def program(world):
        if world.rank == 0:
            handle = world.allreduce_async(np.ones(2), name="only here")
            with pytest.raises(TimeoutError):
                handle.wait(0.05)
            world.barrier()
            with pytest.raises(hpccoll.ShutDownError):
                handle.wait()
        else:
            world.barrier()
        world.shutdown(wait=False)

    testing.run(threads(3, nodes="2+1"), program)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("background", [True, False])
def test_a_call_after_another_rank_has_gone_waits_for_nobody(threads, background):
    """Its request can no longer leave: the rank that would take it has freed its net."""
    first, _, last = worlds = threads(3, nodes="2+1", background=background)
    first.shutdown(wait=False)
    with pytest.raises(hpccoll.ShutDownError, match="rank 0 has called shutdown"):
        last.allreduce(np.ones(2))
    assert last.core.stop(5.0), "the log has ended here, so nothing is left to wait for"
    for world in worlds:
        world.shutdown(wait=False)


def left_by(rank):
    return f"the World has been shut down: rank {rank} has called shutdown() or ended"


@pytest.mark.parametrize("leaver", [0, 1, 2])
@pytest.mark.parametrize("wait", [True, False])
def test_who_has_left_is_named_at_once(threads, leaver, wait):
    """It waits for the others, who will not come: they ask for something that it never will."""

    def program(world):
        world.allreduce(np.ones(2))
        if world.rank == leaver:
            world.shutdown(wait=wait)
            return
        for call in (world.allreduce, world.allgather, world.broadcast_object):
            with pytest.raises(hpccoll.ShutDownError) as error:
                call(np.ones(2))
            assert str(error.value) == left_by(leaver)
        with pytest.raises(hpccoll.ShutDownError, match=re.escape(left_by(leaver))):
            world.join()
        with pytest.raises(hpccoll.ShutDownError, match=re.escape(left_by(leaver))):
            world.recv(np.ones(2), (world.rank + 1) % 3)

    testing.run(threads(3, nodes="2+1", stop_timeout=3600), program)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("leaves", ["the set", "the World"])
def test_who_has_left_a_set_is_named_by_its_rank_in_the_world(threads, leaves):
    """World rank 1 read that rank 1 had left, which was the set's name of World rank 2."""

    def program(world):
        part = world.split(0 if world.rank else 1)
        if world.rank == 2:
            (part if leaves == "the set" else world).shutdown(wait=False)
        elif world.rank == 1:
            with pytest.raises(hpccoll.ShutDownError) as error:
                part.allreduce(np.ones(2))
            assert str(error.value) == left_by("2 of the World that it was made from")

    testing.run(threads(3, nodes="2+1", stop_timeout=3600), program)


@pytest.mark.parametrize("leaver", [0, 1, 2])
@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ValueError("first line\nand more"), "raised ValueError: first line"),
        (SystemExit(3), "raised SystemExit: 3"),
        (SystemExit(0), "called shutdown() or ended"),
    ],
    ids=["exception", "exit", "end"],
)
def test_the_exception_that_ended_a_rank_is_named_to_the_others(threads, leaver, error, named):
    def program(world):
        world.allreduce(np.ones(2))
        if world.rank == leaver:
            with pytest.raises(type(error)), world:
                raise error
            return
        with pytest.raises(hpccoll.ShutDownError) as caught:
            world.allreduce(np.ones(2))
        assert str(caught.value) == f"the World has been shut down: rank {leaver} has {named}"

    testing.run(threads(3, nodes="2+1", stop_timeout=3600), program)


def test_what_was_asked_for_before_the_end_is_waited_for(threads):
    def program(world):
        if world.rank == 0:
            handle = world.allreduce_async(np.ones(2), name="last")
            world.shutdown()
            assert handle.wait()[0] == 3
        else:
            world.allreduce(np.ones(2), name="last")
            with pytest.raises(hpccoll.ShutDownError, match=re.escape(left_by(0))):
                world.barrier()

    testing.run(threads(3, nodes="2+1", stop_timeout=3600), program)


def test_sets_without_the_rank_that_left_go_on(threads):
    def program(world):
        pair, other = world.subset([0, 1]), world.subset([1, 2])
        if world.rank == 2:
            world.shutdown()
            return
        if world.rank == 1:
            with pytest.raises(hpccoll.ShutDownError, match="rank 2 of the World that it was made from has called"):
                other.barrier()
        assert pair.allreduce(np.ones(2))[0] == 2
        world.shutdown()

    testing.run(threads(3, nodes="2+1", stop_timeout=3600), program)


def test_a_shutdown_does_not_wait_for_ever(threads):
    left = threading.Barrier(2)

    def program(world):
        if world.rank == 0:
            world.shutdown()
        left.wait(60)

    testing.run(threads(2, stop_timeout=0.3), program)


def test_what_is_agreed_as_the_world_breaks_does_not_run(threads):
    """Its entry is read in the very step in which another request passes the stall limit; the end does not wait."""
    raised, agreed = threading.Event(), threading.Event()

    def begin(world, *names):
        handles = [world.allreduce_async(np.ones(50_000), name=name) for name in names]
        with contextlib.suppress(TimeoutError, hpccoll.StallError):
            handles[-1].wait(0.05)
        return handles

    def program(world):
        if world.rank == 1:
            handles = begin(world, "only here", "x")
            raised.set()
            assert agreed.wait(60)
            time.sleep(3.2)
            world.progress()
        else:
            assert raised.wait(60)
            handles = begin(world, "x")
            agreed.set()
        for handle in handles:
            with pytest.raises(hpccoll.StallError):
                handle.wait(20)
        assert world.core.stop(20)

    testing.run(threads(2, background=False, stall_limit=3), program)


def test_a_shutdown_wakes_waiting_threads(threads):
    def program(world):
        caught = []

        def wait():
            with pytest.raises(hpccoll.ShutDownError) as error:
                world.allreduce(np.ones(2), name=f"never {world.rank}")
            caught.append(error)

        waiting = [threading.Thread(target=wait)]
        waiting[0].start()
        world.barrier(name="both")
        world.shutdown()
        waiting[0].join()
        assert caught

    testing.run(threads(2), program)


def test_there_is_no_default_world_before_init():
    with pytest.raises(hpccoll.ShutDownError, match="init"):
        hpccoll.allreduce(np.ones(2))
