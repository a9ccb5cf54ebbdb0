# SPDX-License-Identifier: Apache-2.0
"""One rank is asked at any time; all ranks stop after the same step. Threads here, processes under the launcher."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

LAYOUTS = ["1", "2", "3", "4", "1+1", "2+1", "2+2"]
FOREVER = 100_000


def steps_until_stop(world, p, *, work=None):
    """Take steps until should_stop() says so, and return their number."""
    for step in range(FOREVER):
        if work:
            work(step)
        assert world.allreduce(1, name="step") == world.size
        if p.should_stop():
            return step + 1
    raise AssertionError("nobody was stopped")


def threads(layout, program, **knobs):
    ranks = sum(map(int, layout.split("+")))
    return testing.make_and_run(ranks, program, nodes=layout if "+" in layout else "", **knobs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_stop_after_the_step_in_which_one_asked(layout):
    """A rank that asks before its own request of the step stops after it: the agreement takes no further step."""
    asker = sum(map(int, layout.split("+"))) - 1

    def program(world):
        with hpccoll.preemption((), world=world) as p:
            ask = lambda step: p.ask() if world.rank == asker and step == 7 else None  # noqa: E731
            return steps_until_stop(world, p, work=ask)

    assert set(threads(layout, program)) == {8}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(6))
def test_asked_at_any_time(layout, seed):
    chance = random.Random(seed)
    asker, delay = chance.randrange(sum(map(int, layout.split("+")))), chance.uniform(0, 0.01)
    pauses = [random.Random(100 * seed + rank) for rank in range(4)]

    def program(world):
        with hpccoll.preemption((), world=world) as p:
            if world.rank == asker:
                threading.Timer(delay, p.ask).start()
            pause = lambda step: time.sleep(pauses[world.rank].expovariate(5000))  # noqa: E731
            stopped = steps_until_stop(world, p, work=pause)
            assert p.should_stop()  # and for good
            return stopped

    assert len(set(threads(layout, program))) == 1


def test_many_requests_a_step_in_differing_orders():
    """The step ends with the last of its requests, whichever a rank waits for last."""

    def program(world):
        order = random.Random(world.rank)
        with hpccoll.preemption((), world=world) as p:
            if world.rank == 1:
                threading.Timer(0.02, p.ask).start()
            steps = 0
            while steps < FOREVER and not p.should_stop():
                steps += 1
                names = [f"g{i}" for i in range(20)]
                order.shuffle(names)
                handles = [world.allreduce_async(np.ones(10), name=n) for n in names]
                order.shuffle(handles)
                for handle in handles:
                    handle.wait()
            return steps

    assert len(set(threads("2+1", program, cache_capacity=8, fusion_threshold=256))) == 1


def test_no_message_more_a_step():
    """should_stop() costs no message, and to ask costs one entry of the log at most."""
    counted = threading.Barrier(3, timeout=60)

    def program(world):
        with hpccoll.preemption((), world=world) as p:
            for _ in range(20):
                world.barrier(name="warm")
            before = world.stats()
            for _ in range(50):
                world.barrier(name="warm")
                assert not p.should_stop()
            quiet = world.stats()
            counted.wait()  # who asks is heard by all at once
            if world.rank == 2:
                p.ask()
            steps_until_stop(world, p)
            after = world.stats()
        assert quiet["entries"] - before["entries"] == 50
        assert after["entries"] - quiet["entries"] <= 3
        return quiet["messages_up"] + quiet["messages_down"] - before["messages_up"] - before["messages_down"]

    assert threads("2+1", program) == [100, 50, 50]


def test_an_end_time_on_one_rank_stops_all():
    def program(world):
        end = time.time() + (0.05 if world.rank == 1 else 3600)
        with hpccoll.preemption((), end=end, margin=0, world=world) as p:
            stopped = steps_until_stop(world, p)
            assert p.reason == ("the end of the job's time" if world.rank == 1 else "")
            return stopped

    assert len(set(threads("2+1", program))) == 1


def test_a_refused_request_tells_nothing():
    """A join ends at a position of its own, which the other ranks did not wait for."""
    refused = threading.Event()

    def program(world):
        with hpccoll.preemption((), world=world) as p:
            before = world.stats()["entries"]
            world.barrier(name="a")
            first = world.allreduce_async(np.ones(1), name="twice") if world.rank == 0 else None
            if world.rank == 1:
                p.ask()
            while world.stats()["entries"] < before + 2:  # PREEMPT's is behind all that was waited for
                time.sleep(0.001)
            if world.rank == 0:
                with pytest.raises(hpccoll.DuplicateNameError):
                    world.allreduce(np.ones(1), name="twice")
                refused.set()
            assert refused.wait(60)
            assert not p.should_stop()
            (first or world.allreduce_async(np.ones(1), name="twice")).wait()
            assert p.should_stop()

    threads("2", program)


@pytest.mark.parametrize("layout", ["2", "3", "2+1", "2+2"])
def test_ranks_that_have_joined_learn_it_at_the_end_of_the_join(layout):
    def program(world):
        with hpccoll.preemption((), world=world) as p:
            stopped = None
            if world.rank == 0:  # leaves at once
                p.ask()
            else:
                for step in range(FOREVER):
                    world.allreduce(np.ones(3), name="step")
                    if p.should_stop():
                        stopped = step
                        break
            world.join()
            assert p.should_stop()
            return stopped

    assert len(set(threads(layout, program)[1:])) == 1


def test_process_sets_stop_by_themselves():
    """Each half has its own block, and the half that is not asked goes on. The World's block stops for neither."""

    def program(world):
        half = world.split(world.rank % 2)
        with hpccoll.preemption((), world=half) as p, hpccoll.preemption((), world=world) as all_of_us:
            if world.rank == 2:
                p.ask()
            steps = 0
            while steps < 50 and not p.should_stop():
                half.allreduce(1, name="step")
                steps += 1
            world.barrier(name="both")
            assert not all_of_us.should_stop()
            return steps

    steps = threads("2+2", program)
    assert steps[0] == steps[2] < 50
    assert steps[1] == steps[3] == 50


def test_a_world_that_ends_and_one_that_follows():
    """A rank whose World ends before it answers asks the next World; the number of a set passes nothing on."""

    def program(world):
        for _ in range(3):
            one = world.subset(range(world.size))
            with hpccoll.preemption((), world=one) as p:
                one.barrier(name="clean")
                assert not p.should_stop()
                p.ask()
                steps_until_stop(one, p)
            one.shutdown()
            with pytest.raises(hpccoll.ShutDownError):
                p.should_stop()

    threads("2+1", program)


@pytest.mark.mpi(min_size=1)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_to_one_rank(number):
    """Real ranks, a real signal to one of them at a random time, ten times over."""
    chance = random.Random(5)
    with hpccoll.World(verbose=0) as world:
        for _ in range(10):
            chosen, delay = chance.randrange(world.size), chance.uniform(0, 0.03)
            own = world.subset(range(world.size))
            with hpccoll.preemption([number], world=own) as p:
                if world.rank == chosen:
                    threading.Timer(delay, os.kill, (os.getpid(), number)).start()
                stopped = steps_until_stop(own, p)
                assert p.reason == (number.name if world.rank == chosen else "")
            assert world.allgather_object(stopped) == [stopped] * world.size
            own.shutdown()
