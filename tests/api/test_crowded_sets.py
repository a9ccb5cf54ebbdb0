# SPDX-License-Identifier: Apache-2.0
"""Several threads of a rank make process sets of one World at once, in no common order.

MPI allows one collective call at a time per communicator. Here such a call is an error, the same on all ranks, and the
World goes on.
"""

import re
import threading

import pytest

import hpccoll
from hpccoll import testing

CALLS = {
    "subset": lambda world: world.subset([1, 0]),
    "split": lambda world: world.split(0),
    "cart": lambda world: world.cart([2]).world,
}
pytestmark = pytest.mark.timeout(120)


def call_at_once(world, calls):
    """Let a thread make each call; return the outcomes, by thread: a World or an error."""
    together, outcomes = threading.Barrier(len(calls), timeout=60), dict.fromkeys(range(len(calls)))

    def one(at):
        together.wait()
        try:
            outcomes[at] = calls[at](world)
        except hpccoll.HpccollError as error:
            outcomes[at] = error

    threads = [threading.Thread(target=one, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(outcomes.values())


def errors_of(outcomes):
    """Return the texts of the errors among them; end the Worlds."""
    worlds = [made for made in outcomes if not isinstance(made, Exception)]
    for made in sorted(worlds, key=lambda world: world.core.generation):  # of another thread on another rank
        assert made.allreduce(1) == 2
        made.shutdown()
    return [str(error) for error in outcomes if isinstance(error, Exception)]


@pytest.mark.parametrize("call", CALLS)
def test_one_thread_waits_while_another_one_calls(threads, call):
    """Rank 1 comes last, so on rank 0 each thread but the first finds another one in its call."""
    called = threading.Event()

    def program(world):
        calls = [CALLS[call]] * 3
        if world.rank == 0:
            counted = []

            def counting(own):
                counted.append(1)
                if len(counted) == len(calls):
                    threading.Timer(0.5, called.set).start()
                return CALLS[call](own)

            outcomes = call_at_once(world, [counting] * 3)
        else:
            assert called.wait(60)
            outcomes = []
            for one in calls:  # in order: this rank alone would see nothing wrong
                outcomes += call_at_once(world, [one])
        said = errors_of(outcomes)
        assert len(said) == 2
        for text in said:
            assert re.match(rf"{call}: several threads of rank 0 called it at once on one World: ", text), text
        assert errors_of([CALLS[call](world)]) == []
        return sorted(said)

    first, second = testing.run(threads(2), program)
    assert first == second


def test_threads_of_all_ranks(threads):
    """Whatever the order: as many sets and errors on each rank; nothing is left in flight, no number is lost."""

    def program(world):
        failed = 0
        for _ in range(20):
            failed += len(errors_of(call_at_once(world, [CALLS["subset"]] * 3)))
            world.barrier()
        assert errors_of([world.split(0)]) == []
        assert world.split(0).core.number == 1
        return failed

    first, second = testing.run(threads(2, nodes="2"), program)
    assert first == second


def test_threads_that_make_different_calls(threads):
    """A thread per operation is an order: no call meets one of another kind, also where they need a second exchange."""

    def program(world):
        for _ in range(20):
            assert errors_of(call_at_once(world, list(CALLS.values()))) == []

    testing.run(threads(2), program)
