# SPDX-License-Identifier: Apache-2.0
"""Memory of a request in flight is refused to another one: both would write it, or one read what the other writes."""

import random

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

SAID = r"shares memory with an array of \w+ '.*', which is in flight"
N = 1000


def array(value=0.0):
    return np.full(N, value)


PAIRS = {
    "one out": lambda a: ({"x": a[0], "out": a[1]}, {"x": a[2], "out": a[1]}),
    "overlapping outs": lambda a: ({"x": a[0][:600], "out": a[1][:600]}, {"x": a[2][:600], "out": a[1][400:]}),
    "in place, twice": lambda a: ({"x": a[0], "out": a[0]}, {"x": a[0], "out": a[0]}),
    "an out is read": lambda a: ({"x": a[0], "out": a[1]}, {"x": a[1], "out": a[2]}),
    "an out is read, without an out": lambda a: ({"x": a[0], "out": a[1]}, {"x": a[1]}),
    "an input is written": lambda a: ({"x": a[0], "out": a[1]}, {"x": a[2], "out": a[0]}),
    "a strided out, twice": lambda a: ({"x": a[0][::2], "out": a[1][::2]}, {"x": a[2][::2], "out": a[1][::2]}),
    "a strided out, backwards": lambda a: ({"x": a[0][::2], "out": a[1][::-2]}, {"x": a[2][:9], "out": a[1][:9]}),
    "a strided out is read": lambda a: ({"x": a[0][::2], "out": a[1][::2]}, {"x": a[1], "out": a[2]}),
    "an out is read by strides": lambda a: ({"x": a[0], "out": a[1]}, {"x": a[1][::2], "out": a[2][::2]}),
    "an input is written by strides": lambda a: ({"x": a[0], "out": a[1]}, {"x": a[2][::2], "out": a[0][::2]}),
    "an input of a call without an out is written": lambda a: ({"x": a[0]}, {"x": a[2], "out": a[0]}),
}


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_second_of_two_is_refused_at_the_call_and_the_first_goes_on(everywhere, pair, blocking):
    def program(world):
        p = world.size
        arrays = [array(1.0), array(2.0), array(3.0)]
        first, second = PAIRS[pair](arrays)
        hpccoll.barrier(world=world)
        handle = None
        if world.rank == 0 and p > 1:  # the others come later, so that it is in flight for certain
            value = first["x"][0]
            handle = hpccoll.allreduce_async(**first, name="first", world=world)
            with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                (hpccoll.allreduce if blocking else hpccoll.allreduce_async)(**second, name="second", world=world)
            hpccoll.barrier(name="go", world=world)
        elif p > 1:
            hpccoll.barrier(name="go", world=world)
            value = first["x"][0]
            handle = hpccoll.allreduce_async(**first, name="first", world=world)
        if handle:
            assert (handle.wait() == value * p).all()
        value = second["x"][-1]
        assert hpccoll.allreduce_async(**second, name="second", world=world).wait()[-1] == value * p

    everywhere(program)


MESSAGES = {
    "two receives": lambda a: ((hpccoll.recv_async, a[1]), (hpccoll.recv_async, a[1][400:])),
    "a receive, then a blocking one": lambda a: ((hpccoll.recv_async, a[1]), (hpccoll.recv, a[1])),
    "a receive is sent": lambda a: ((hpccoll.recv_async, a[1]), (hpccoll.send_async, a[1])),
    "what is sent is received": lambda a: ((hpccoll.send_async, a[1]), (hpccoll.recv_async, a[1][:10])),
}


@pytest.mark.parametrize("pair", MESSAGES)
def test_a_message_whose_memory_is_in_flight_is_refused(threads, pair):
    """And nothing was sent: the first one goes on."""

    def program(world):
        large = [np.full(1 << 18, float(world.rank)) for _ in range(3)]  # a send of these waits for its receive
        (first, x), (second, y) = MESSAGES[pair](large)
        other = 1 - world.rank
        if world.rank == 0:
            handle = first(x, other, tag=1, world=world)
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"x shares memory with an array of a (recv|send), "):
                second(y, other, tag=2, world=world)
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"(x|out) shares memory with an array of a "):
                hpccoll.allreduce_async(y, out=y, world=world)
            hpccoll.send_async(np.ones(3), other, tag=3, world=world).wait()
            handle.wait()
            assert hpccoll.allreduce_async(y, out=y, name="after", world=world).wait() is y
        else:
            hpccoll.recv(np.empty(3), other, tag=3, world=world)
            counterpart = hpccoll.send if first is hpccoll.recv_async else hpccoll.recv
            counterpart(large[2], other, tag=1, world=world)
            hpccoll.allreduce_async(y, out=y, name="after", world=world).wait()

    testing.run(threads(2), program)


def test_sendrecv_is_refused_what_is_in_flight(threads):
    def program(world):
        large, small, other = np.full(1 << 18, float(world.rank)), np.ones(3), 1 - world.rank
        handle = hpccoll.recv_async(large, other, tag=1, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match="out shares memory with an array of a recv"):
            hpccoll.sendrecv(small, other, large[:3], other, world=world)
        with pytest.raises(hpccoll.InvalidArgumentError, match="x shares memory with an array of a recv"):
            hpccoll.sendrecv(large[:3], other, small, other, world=world)
        hpccoll.send(np.full(1 << 18, 7.0), other, tag=1, world=world)
        handle.wait()
        assert large[-1] == 7

    testing.run(threads(2), program)


def test_one_array_is_sent_twice_at_a_time(threads):
    def program(world):
        x, other = np.full(1 << 18, float(world.rank)), 1 - world.rank
        got = [np.empty_like(x) for _ in range(2)]
        handles = [hpccoll.recv_async(g, other, world=world) for g in got]
        handles += [hpccoll.send_async(x, other, world=world) for _ in range(2)]
        for handle in handles:
            handle.wait()
        assert got[0][0] == got[1][-1] == other

    testing.run(threads(2), program)


def test_what_is_disjoint_is_not_refused(threads):
    def program(world):
        chance = random.Random(7)
        memory, step = np.ones(64 * 200), 64
        for _ in range(20):
            order = chance.sample(range(200), 200)
            handles = [
                (
                    at,
                    hpccoll.allreduce_async(
                        memory[at * step :][:step], name=f"n{at}", out=memory[at * step :][:step], world=world
                    ),
                )
                for at in order
            ]
            for _, handle in handles:
                assert handle.wait()[0] == 2
            memory[:] = 1
        x = array(1.0)
        same = [hpccoll.allreduce_async(x, name=f"same {i}", world=world) for i in range(20)]  # read by all of them
        assert all(handle.wait()[0] == 2 for handle in same)
        halves = [hpccoll.allgather_async(x, name=f"half {i}", out=np.empty(2 * N), world=world) for i in range(20)]
        assert all(handle.wait()[0] == 1 for handle in halves)

    testing.run(threads(2), program)


def test_done_is_enough(threads):
    """What is finished may be used again, also if nobody has waited for it."""

    def program(world):
        out = array()
        for step in range(50):
            handle = hpccoll.allreduce_async(array(float(step)), name="x", out=out, world=world)
            kept = hpccoll.allreduce_async(array(float(step)), name=f"kept {step}", out=array(), world=world)
            while not handle.done():
                pass
            assert hpccoll.allreduce_async(out, name="y", out=out, world=world).wait()[0] == 4 * step
            if step % 7 == 0:
                kept.wait()

    testing.run(threads(2), program)


def test_groups_and_single_calls(threads):
    def program(world):
        a, b = array(1.0), array(2.0)
        hpccoll.barrier(world=world)
        if world.rank == 0:
            handle = hpccoll.allreduce_async([a, b], name="group", out=[a, b], world=world)
            with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                hpccoll.allreduce_async([array(), a[5:6]], name="other", out=[array(), array()[:1]], world=world)
            with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                hpccoll.reducescatter_async(array(), name="rs", out=b[: N // 2], world=world)
            hpccoll.barrier(name="go", world=world)
        else:
            hpccoll.barrier(name="go", world=world)
            handle = hpccoll.allreduce_async([a, b], name="group", out=[a, b], world=world)
        handle.wait()
        assert (a[0], b[0]) == (2, 4)

    testing.run(threads(2), program)


def test_tied_weights_may_be_broadcast_at_once(threads):
    """Two broadcasts of one memory write the same values; a model that shares a weight has two names for it."""

    def program(world):
        x = array(float(world.rank + 1))
        handles = [hpccoll.broadcast_async(x, 0, name=name, out=x, world=world) for name in ("first", "tied")]
        for handle in handles:
            assert handle.wait()[0] == 1

    testing.run(threads(2), program)


def test_against_a_table_of_all_spans(threads):
    """Random spans of one array, 30 at a time: refused where they overlap, and only there."""

    def program(world):
        chance = random.Random(3)
        memory = np.zeros(400)
        for round_number in range(60):
            held = []
            hpccoll.barrier(world=world)
            if world.rank == 0:
                for number in range(30):
                    begin = chance.randrange(390)
                    end = chance.randrange(begin + 1, min(begin + 40, 400))
                    mine = set(range(begin, end))
                    free = all(not mine & other for _, _, other in held)
                    name = f"{round_number} {number}"
                    if free:
                        view = memory[begin:end]
                        held.append((name, hpccoll.allreduce_async(view, name=name, out=view, world=world), mine))
                    else:
                        with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                            hpccoll.allreduce_async(memory[begin:end], name=name, out=memory[begin:end], world=world)
            told = hpccoll.broadcast_object([(name, len(mine)) for name, _, mine in held], world=world)
            if world.rank:
                held = [(name, hpccoll.allreduce_async(np.zeros(n), name=name, world=world), None) for name, n in told]
            for _, handle, _ in held:
                handle.wait()

    testing.run(threads(2), program)
