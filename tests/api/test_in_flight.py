# SPDX-License-Identifier: Apache-2.0
"""Memory of a request in flight is refused to another one: both would write it, or one read what the other writes."""

import random

import numpy as np
import pytest

import hpccoll
from hpccoll import World, testing

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
        world.barrier()
        handle = None
        if world.rank == 0 and p > 1:  # the others come later, so that it is in flight for certain
            value = first["x"][0]
            handle = world.allreduce_async(**first, name="first")
            with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                (world.allreduce if blocking else world.allreduce_async)(**second, name="second")
            world.barrier(name="go")
        elif p > 1:
            world.barrier(name="go")
            value = first["x"][0]
            handle = world.allreduce_async(**first, name="first")
        if handle:
            assert (handle.wait() == value * p).all()
        value = second["x"][-1]
        assert world.allreduce_async(**second, name="second").wait()[-1] == value * p

    everywhere(program)


MESSAGES = {
    "two receives": lambda a: ((World.recv_async, a[1]), (World.recv_async, a[1][400:])),
    "a receive, then a blocking one": lambda a: ((World.recv_async, a[1]), (World.recv, a[1])),
    "a receive is sent": lambda a: ((World.recv_async, a[1]), (World.send_async, a[1])),
    "what is sent is received": lambda a: ((World.send_async, a[1]), (World.recv_async, a[1][:10])),
}


@pytest.mark.parametrize("pair", MESSAGES)
def test_a_message_whose_memory_is_in_flight_is_refused(threads, pair):
    """And nothing was sent: the first one goes on."""

    def program(world):
        large = [np.full(1 << 18, float(world.rank)) for _ in range(3)]  # a send of these waits for its receive
        (first, x), (second, y) = MESSAGES[pair](large)
        other = 1 - world.rank
        if world.rank == 0:
            handle = first(world, x, other, tag=1)
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"x shares memory with an array of a (recv|send), "):
                second(world, y, other, tag=2)
            with pytest.raises(hpccoll.InvalidArgumentError, match=r"(x|out) shares memory with an array of a "):
                world.allreduce_async(y, out=y)
            world.send_async(np.ones(3), other, tag=3).wait()
            handle.wait()
            assert world.allreduce_async(y, out=y, name="after").wait() is y
        else:
            world.recv(np.empty(3), other, tag=3)
            counterpart = world.send if first is World.recv_async else world.recv
            counterpart(large[2], other, tag=1)
            world.allreduce_async(y, out=y, name="after").wait()

    testing.run(threads(2), program)


def test_sendrecv_is_refused_what_is_in_flight(threads):
    def program(world):
        large, small, other = np.full(1 << 18, float(world.rank)), np.ones(3), 1 - world.rank
        handle = world.recv_async(large, other, tag=1)
        with pytest.raises(hpccoll.InvalidArgumentError, match="out shares memory with an array of a recv"):
            world.sendrecv(small, other, large[:3], other)
        with pytest.raises(hpccoll.InvalidArgumentError, match="x shares memory with an array of a recv"):
            world.sendrecv(large[:3], other, small, other)
        world.barrier()  # a receive that is over is in flight no more
        world.send(np.full(1 << 18, 7.0), other, tag=1)
        handle.wait()
        assert large[-1] == 7

    testing.run(threads(2), program)


def test_one_array_is_sent_twice_at_a_time(threads):
    def program(world):
        x, other = np.full(1 << 18, float(world.rank)), 1 - world.rank
        got = [np.empty_like(x) for _ in range(2)]
        handles = [world.recv_async(g, other) for g in got]
        handles += [world.send_async(x, other) for _ in range(2)]
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
                    world.allreduce_async(memory[at * step :][:step], name=f"n{at}", out=memory[at * step :][:step]),
                )
                for at in order
            ]
            for _, handle in handles:
                assert handle.wait()[0] == 2
            memory[:] = 1
        x = array(1.0)
        same = [world.allreduce_async(x, name=f"same {i}") for i in range(20)]  # read by all of them
        assert all(handle.wait()[0] == 2 for handle in same)
        halves = [world.allgather_async(x, name=f"half {i}", out=np.empty(2 * N)) for i in range(20)]
        assert all(handle.wait()[0] == 1 for handle in halves)

    testing.run(threads(2), program)


def test_done_is_enough(threads):
    """What is finished may be used again, also if nobody has waited for it."""

    def program(world):
        out = array()
        for step in range(50):
            handle = world.allreduce_async(array(float(step)), name="x", out=out)
            kept = world.allreduce_async(array(float(step)), name=f"kept {step}", out=array())
            while not handle.done():
                pass
            assert world.allreduce_async(out, name="y", out=out).wait()[0] == 4 * step
            if step % 7 == 0:
                kept.wait()

    testing.run(threads(2), program)


def test_groups_and_single_calls(threads):
    def program(world):
        a, b = array(1.0), array(2.0)
        world.barrier()
        if world.rank == 0:
            handle = world.allreduce_async([a, b], name="group", out=[a, b])
            with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                world.allreduce_async([array(), a[5:6]], name="other", out=[array(), array()[:1]])
            with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                world.reducescatter_async(array(), name="rs", out=b[: N // 2])
            world.barrier(name="go")
        else:
            world.barrier(name="go")
            handle = world.allreduce_async([a, b], name="group", out=[a, b])
        handle.wait()
        assert (a[0], b[0]) == (2, 4)

    testing.run(threads(2), program)


def test_tied_weights_may_be_broadcast_at_once(threads):
    """Two broadcasts of one memory write the same values; a model that shares a weight has two names for it."""

    def program(world):
        x = array(float(world.rank + 1))
        handles = [world.broadcast_async(x, 0, name=name, out=x) for name in ("first", "tied")]
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
            world.barrier()
            if world.rank == 0:
                for number in range(30):
                    begin = chance.randrange(390)
                    end = chance.randrange(begin + 1, min(begin + 40, 400))
                    mine = set(range(begin, end))
                    free = all(not mine & other for _, _, other in held)
                    name = f"{round_number} {number}"
                    if free:
                        view = memory[begin:end]
                        held.append((name, world.allreduce_async(view, name=name, out=view), mine))
                    else:
                        with pytest.raises(hpccoll.InvalidArgumentError, match=SAID):
                            world.allreduce_async(memory[begin:end], name=name, out=memory[begin:end])
            told = world.broadcast_object([(name, len(mine)) for name, _, mine in held])
            if world.rank:
                held = [(name, world.allreduce_async(np.zeros(n), name=name), None) for name, n in told]
            for _, handle, _ in held:
                handle.wait()

    testing.run(threads(2), program)
