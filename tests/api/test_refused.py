# SPDX-License-Identifier: Apache-2.0
"""A call without a name that one rank refuses is a call: the others hear of it, and the next calls belong together.

Expectations: sums that NumPy would give of the values that the ranks pass in the calls of one number.
"""

import numpy as np
import pytest

import hpccoll

REFUSED = r"rank {} has refused this call: "


def values(world, number, count=3):
    """The values of this rank in a call, and their sum over the ranks."""
    return np.full(count, (world.rank + 1.0) * 10**number), world.size * (world.size + 1) / 2 * 10**number


def agrees(world, number, count=3):
    x, total = values(world, number, count)
    np.testing.assert_array_equal(world.allreduce(x), total)


def wrong(world):
    return world.allreduce(np.array(["a"]))


WRONG = {
    "dtype": wrong,
    "op": lambda world: world.allreduce(np.ones(3), "sum"),
    "factor": lambda world: world.allreduce(np.ones(3, int), prescale=2.0),
    "out": lambda world: world.allreduce(np.ones(3), out=np.ones(4)),
    "group": lambda world: world.allreduce([np.ones(3), object()]),
    "user reduction": lambda world: world.allreduce([1.0], hpccoll.MINLOC),
    "asynchronous": lambda world: world.allreduce_async(np.array(["a"])),
}


@pytest.mark.parametrize("count", [3, 3000], ids=["small", "large"])
@pytest.mark.parametrize("kind", WRONG)
def test_the_others_hear_of_it_and_the_next_call_matches(everywhere, kind, count):
    def program(world):
        refuses = world.size - 1
        for number in range(0, 4, 2):
            if world.rank == refuses:
                with pytest.raises(hpccoll.HpccollError) as told:
                    WRONG[kind](world)
                assert "refused" not in str(told.value)
            elif kind == "user reduction":
                pairs = hpccoll.value_index([1.0], [2])
                with pytest.raises(hpccoll.MismatchError, match=REFUSED.format(refuses)):
                    world.allreduce(pairs, hpccoll.MINLOC)
            else:
                with pytest.raises(hpccoll.MismatchError, match=REFUSED.format(refuses)):
                    world.allreduce(values(world, number, count)[0])
            agrees(world, number + 1, count)

    everywhere(program)


@pytest.mark.parametrize("kind", WRONG)
def test_all_refuse_and_the_next_call_matches(everywhere, kind):
    def program(world):
        for number in range(3):
            for _ in range(number):
                with pytest.raises(hpccoll.HpccollError):
                    WRONG[kind](world)
            agrees(world, number)

    everywhere(program)


@pytest.mark.parametrize("refused", range(3))
def test_among_calls_in_flight(everywhere, refused):
    """One of three asynchronous calls, which are waited for in either order: the first one may be alone in flight."""

    def program(world):
        for order in (1, -1):
            handles = []
            for number in range(3):
                if number == refused and world.rank == 0:
                    with pytest.raises(hpccoll.UnsupportedError):
                        world.allreduce_async(np.array(["a"]))
                    continue
                handles.append((number, world.allreduce_async(values(world, number)[0])))
            for number, handle in handles[::order]:
                if number == refused and world.size > 1:
                    with pytest.raises(hpccoll.MismatchError, match=REFUSED.format(0)):
                        handle.wait()
                else:
                    np.testing.assert_array_equal(handle.wait(), values(world, number)[1])
        agrees(world, 4)

    everywhere(program)


def test_before_calls_that_are_waited_for_one_by_one(everywhere):
    def program(world):
        if world.rank == 0:
            with pytest.raises(hpccoll.UnsupportedError):
                world.allreduce_async(np.array(["a"]))
        elif world.size > 1:
            with pytest.raises(hpccoll.MismatchError, match=REFUSED.format(0)):
                world.allreduce_async(np.ones(3)).wait()
        for number in range(2):
            x, total = values(world, number)
            np.testing.assert_array_equal(world.allreduce_async(x).wait(), total)
        agrees(world, 4)

    everywhere(program)


OBJECTS = {
    "broadcast": lambda world, root: world.broadcast_object(world.rank, root),
    "gather": lambda world, root: world.gather_object(world.rank, root),
    "scatter": lambda world, root: world.scatter_object(list(range(world.size)), root),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_root_of_objects_that_no_rank_is(everywhere, kind):
    def program(world):
        refuses = world.rank == world.size - 1
        for number in range(2):
            expected = hpccoll.InvalidArgumentError if refuses else hpccoll.MismatchError
            with pytest.raises(expected, match=f"root is {world.size}: the World has ranks 0 to"):
                OBJECTS[kind](world, world.size if refuses else 0)
            agrees(world, number)

    everywhere(program)


def test_objects_of_a_root(everywhere):
    def program(world):
        with pytest.raises(hpccoll.HpccollError, match=r"scatter_object of 0 objects|has refused"):
            world.scatter_object([], 0)
        agrees(world, 1)

    everywhere(program)


class Hostile:
    """An object whose methods raise: pickle gets an exception that has no text."""

    class Error(Exception):
        def __str__(self):
            raise ValueError

    def __reduce__(self):
        raise self.Error

    def __iter__(self):
        raise ValueError("no objects")


def test_objects_whose_methods_raise(everywhere):
    """The others waited for a root that had raised what is no error of the library."""

    def program(world):
        hostile = Hostile() if world.rank == 0 else None
        for call in (world.broadcast_object, world.allgather_object, world.gather_object):
            with pytest.raises(hpccoll.ObjectError, match=r"rank 0 has a Hostile that pickle refuses: .*Error$"):
                call(hostile)
        with pytest.raises(ValueError if world.rank == 0 else hpccoll.MismatchError, match="no objects"):
            world.scatter_object(hostile)
        agrees(world, 0)
        everybody = iter(range(world.size)) if world.rank == 0 else None
        assert world.scatter_object(everybody) == world.rank
        assert world.broadcast_object(world.rank, root=False if world.rank == 0 else 0) == 0
        agrees(world, 1)

    everywhere(program)


def test_a_call_with_a_name_may_be_made_again(everywhere):
    """The name says which call it is: the others wait for it, and know of no error."""

    def program(world):
        x, total = values(world, 1)
        if world.rank == 0:
            with pytest.raises(hpccoll.UnsupportedError):
                world.allreduce(np.array(["a"]), name="x")
        np.testing.assert_array_equal(world.allreduce(x, name="x"), total)
        agrees(world, 2)

    everywhere(program)


def test_a_rank_with_a_refusal_that_nobody_shares(everywhere):
    """It goes on with calls that have names, and with messages; the others have the error when they come to it."""

    def program(world):
        x, total = values(world, 1)
        if world.rank == 0:
            with pytest.raises(hpccoll.UnsupportedError):
                wrong(world)
        for _ in range(3):
            np.testing.assert_array_equal(world.allreduce(x, name="x"), total)
        if world.rank:
            with pytest.raises(hpccoll.MismatchError, match=REFUSED.format(0)):
                world.barrier()
        agrees(world, 2)

    everywhere(program)


def test_behind_a_join(everywhere):
    def program(world):
        if world.rank == 0:
            with pytest.raises(hpccoll.UnsupportedError):
                wrong(world)
        elif world.size > 1:
            with pytest.raises(hpccoll.MismatchError, match=REFUSED.format(0)):
                world.allreduce(np.ones(3))
        world.join()
        agrees(world, 1)

    everywhere(program)
