# SPDX-License-Identifier: Apache-2.0
"""One World from both sides of a program: Python makes it, C uses it."""

import ctypes
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import hpccoll

LIBRARY = Path(hpccoll.__file__).parent / "lib" / "libhpccoll.so.1"
FLOAT64, SUM, MISMATCH, SHUT_DOWN, INVALID, UNSUPPORTED = 12, 1, -1, -3, -8, -13


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(LIBRARY))
    loaded.hpccoll_last_error.restype = ctypes.c_char_p
    loaded.hpccoll_world_from_python.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for name in ("hpccoll_rank", "hpccoll_size"):
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
    return loaded


def given_to_c(library: ctypes.CDLL, world: hpccoll.World) -> ctypes.c_void_p:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    given = ctypes.c_void_p()
    found = pointer(world.capsule(), b"hpccoll.world")
    assert library.hpccoll_world_from_python(found, ctypes.byref(given)) == 0
    return given


def add(library: ctypes.CDLL, world: ctypes.c_void_p, x: np.ndarray) -> int:
    return library.hpccoll_allreduce(
        ctypes.c_void_p(-1), x.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(x.size), FLOAT64, SUM, None, world
    )


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_both_sides_take_turns(library: ctypes.CDLL) -> None:
    with hpccoll.World(verbose=0) as world:
        c = given_to_c(library, world)
        assert (library.hpccoll_rank(c), library.hpccoll_size(c)) == (world.rank, world.size)
        for turn in range(20):
            x = np.full(turn + 1, world.rank + 1.0)
            handle = world.allreduce_async(x.copy(), hpccoll.MAX)  # unnamed on both sides, in flight
            assert add(library, c, x) == 0
            assert (x == world.size * (world.size + 1) / 2).all()
            assert (handle.wait() == world.size).all()
        half = world.split(world.rank % 2)
        of_half = given_to_c(library, half)
        assert library.hpccoll_size(of_half) == half.size
        half.shutdown()
        assert add(library, of_half, x) == SHUT_DOWN
        assert add(library, c, x) == 0
    assert add(library, c, x) == SHUT_DOWN
    assert b"shut down by Python" in library.hpccoll_last_error()
    assert library.hpccoll_world_free(ctypes.byref(c)) == 0


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_python_has_its_own_elastic_jobs(library: ctypes.CDLL) -> None:
    number = ctypes.c_int()
    with hpccoll.World(verbose=0) as world:
        c = given_to_c(library, world)
        assert library.hpccoll_lost_ranks(c, 0, None, ctypes.byref(number)) == UNSUPPORTED
        assert b"the World is Python's: World.lost_ranks() has them" in library.hpccoll_last_error()
        assert library.hpccoll_world_changes(c, ctypes.byref(number)) == UNSUPPORTED
        assert library.hpccoll_leave(c) == UNSUPPORTED


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_small_calls_of_both_sides(library: ctypes.CDLL) -> None:
    """The calls of both sides number Python's shortcuts."""
    with hpccoll.World(verbose=0) as world:
        c, draw = given_to_c(library, world), np.random.default_rng(3)
        expected = world.size * (world.size + 1) / 2
        for turn in range(200):
            x = np.full(3, world.rank + 1.0)
            side = draw.integers(4)
            if side == 0:
                assert add(library, c, x) == 0
            elif side == 1:
                assert world.allreduce(x, out=x, name=f"named {turn % 5}") is x
            elif side == 2 and turn % 3 == 0:
                world.join()
                continue
            else:
                assert world.allreduce(x, out=x) is x
            assert (x == expected).all(), (turn, side)
        taken = world.stats()["shortcuts"]
        assert (world.allgather(np.array([taken]), name="taken") == taken).all()


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_ranks_call_from_different_sides(library: ctypes.CDLL) -> None:
    """Calls without a name match by their order, whichever side each rank calls from."""
    with hpccoll.World(verbose=0) as world:
        c = given_to_c(library, world)
        for turn in range(60):
            x = np.full(3, world.rank + 1.0)
            if (turn + world.rank) % 3 == 0:
                assert add(library, c, x) == 0
            else:
                world.allreduce(x, out=x)
            assert (x == world.size * (world.size + 1) / 2).all(), turn


FUNCTION = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_double),
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.c_void_p,
)


@FUNCTION
def hypot_in_c(given, inout, count, dtype, context) -> None:
    a, b = np.ctypeslib.as_array(given, (count,)), np.ctypeslib.as_array(inout, (count,))
    np.hypot(a, b, out=b)


@pytest.mark.mpi
@pytest.mark.timeout(120)
@pytest.mark.parametrize("n", [3, 30_000])
def test_ranks_reduce_by_their_own_function_from_different_sides(library: ctypes.CDLL, n: int) -> None:
    with hpccoll.World(verbose=0) as world:
        c, op = given_to_c(library, world), ctypes.c_int()
        assert library.hpccoll_op_create(hypot_in_c, None, ctypes.c_int64(1), b"hypot", ctypes.byref(op)) == 0
        given = [np.random.default_rng([n, rank]).random(n) for rank in range(world.size)]
        wanted = reduce(np.hypot, given)
        for turn in range(4):
            x = given[world.rank].copy()
            if (turn + world.rank) % 2:
                data = ctypes.c_void_p(x.ctypes.data)
                assert library.hpccoll_allreduce(data, data, ctypes.c_int64(n), FLOAT64, op, None, c) == 0
            else:
                world.allreduce(x, hpccoll.UserReduction(np.hypot), out=x)
            np.testing.assert_array_equal(x, wanted)
        if world.rank == 0:
            x = np.ones(n)
            data = ctypes.c_void_p(x.ctypes.data)
            status = library.hpccoll_scan(data, data, ctypes.c_int64(n), FLOAT64, op, None, c)
            assert status == (0 if world.size == 1 else MISMATCH)
            assert world.size == 1 or b"rank 1 for scan with maximum of float64[" in library.hpccoll_last_error()
        else:
            with pytest.raises(hpccoll.MismatchError, match="rank 0 asks for scan with hypot of float64"):
                world.scan(np.ones(n), hpccoll.UserReduction(np.maximum))
        assert library.hpccoll_op_free(ctypes.byref(op)) == 0


@pytest.mark.mpi(min_size=2)
@pytest.mark.timeout(120)
def test_memory_in_flight_on_one_side_is_refused_on_the_other(library: ctypes.CDLL) -> None:
    with hpccoll.World(verbose=0) as world:
        c, x, request = given_to_c(library, world), np.ones(4), ctypes.c_void_p()
        data, count = ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(x.size)
        if world.rank == 0:
            held = world.allreduce_async(x, out=x, name="held")
            assert library.hpccoll_send(data, count, FLOAT64, 1, 7, c) == INVALID
            assert b"send shares memory with an array of allreduce 'held'" in library.hpccoll_last_error()
            world.barrier(name="refused in C")
            held.wait()
            assert library.hpccoll_recv_async(
                data, count, FLOAT64, 1, 7, None, None, c, ctypes.byref(request)) == 0  # fmt: skip
            with pytest.raises(hpccoll.InvalidArgumentError, match="shares memory with an array of a recv"):
                world.allreduce(x, out=x, name="refused in Python")
        else:
            world.barrier(name="refused in C")
            world.allreduce(x, out=x, name="held")
        world.barrier(name="refused in Python")
        if world.rank == 1:
            world.send(x, dest=0, tag=7)
        if world.rank == 0:
            assert library.hpccoll_wait(ctypes.byref(request)) == 0
        assert (x == world.size).all()


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_c_may_end_its_use(library: ctypes.CDLL) -> None:
    with hpccoll.World(verbose=0) as world:
        c = given_to_c(library, world)
        assert library.hpccoll_world_free(ctypes.byref(c)) == 0
        assert c.value is None
        assert world.allreduce(np.ones(1)) == world.size


@pytest.mark.mpi
@pytest.mark.timeout(120)
@pytest.mark.parametrize("elements", [1, 30_000])
def test_plans_of_both_sides(library: ctypes.CDLL, elements: int) -> None:
    """C makes plans in the loop that Python has made; the World may end before they are freed."""
    with hpccoll.World(verbose=0) as world:
        c, plan = given_to_c(library, world), ctypes.c_void_p()
        x, y = np.empty(elements), np.empty(elements)
        make = library.hpccoll_allreduce_init
        data, count = ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(x.size)
        assert make(ctypes.c_void_p(-1), data, count, FLOAT64, SUM, None, c, ctypes.byref(plan)) == 0
        of_python = world.allreduce_init(y, hpccoll.MAX, out=y)
        half = world.split(world.rank % 2)
        with half.barrier_init() as barrier:
            for step in range(5):
                x[:], y[:] = world.rank + step, world.rank + step
                assert library.hpccoll_start(plan) == 0
                of_python.start()
                barrier()
                assert add(library, c, np.ones(2)) == 0
                done = ctypes.c_int()
                while not done.value:
                    assert library.hpccoll_plan_test(plan, ctypes.byref(done)) == 0
                assert library.hpccoll_plan_wait(plan) == 0
                of_python.wait()
                assert (x == sum(range(world.size)) + world.size * step).all()
                assert (y == world.size - 1 + step).all()
        half.shutdown()
        other, count = ctypes.c_void_p(), ctypes.c_int64(1 - world.rank % 2)
        wrong = make(ctypes.c_void_p(-1), data, count, FLOAT64, SUM, None, c, ctypes.byref(other))
        assert wrong == (MISMATCH if world.size > 1 else 0)
        assert world.size == 1 or b"tensors differs" in library.hpccoll_last_error()
    assert library.hpccoll_start(plan) == SHUT_DOWN
    assert library.hpccoll_plan_free(ctypes.byref(plan)) == 0


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_process_sets_of_both_sides(library: ctypes.CDLL) -> None:
    """They have different numbers; one that C has not freed ends with the World."""
    with hpccoll.World(verbose=0) as world:
        c, parity = given_to_c(library, world), world.rank % 2
        for turn in range(3):
            of_c, of_half = ctypes.c_void_p(), ctypes.c_void_p()
            assert library.hpccoll_split(c, parity, -world.rank, ctypes.byref(of_c)) == 0
            half = world.split(parity)
            assert library.hpccoll_split(given_to_c(library, half), 0, 0, ctypes.byref(of_half)) == 0
            assert library.hpccoll_size(of_c) == half.size
            assert library.hpccoll_rank(of_c) == half.size - 1 - half.rank
            for one in (of_c, of_half):
                x = np.full(1000, world.rank + turn, np.float64)
                assert add(library, one, x) == 0
                assert (x == sum(range(parity, world.size, 2)) + turn * half.size).all()
            assert (half.allreduce(np.ones(2)) == half.size).all()
            assert library.hpccoll_world_free(ctypes.byref(of_half)) == 0
            half.shutdown()
            if turn != 1:
                assert library.hpccoll_world_free(ctypes.byref(of_c)) == 0
            else:
                left = of_c
    assert add(library, left, x) == SHUT_DOWN
    assert library.hpccoll_world_free(ctypes.byref(left)) == 0
    assert library.hpccoll_world_free(ctypes.byref(c)) == 0


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_halos_of_both_sides(library: ctypes.CDLL) -> None:
    """A plan of C and one of Python on the same ring, started together, of which each shuts out the other's cells."""
    with hpccoll.World(verbose=0) as world:
        c, ring, plan = given_to_c(library, world), ctypes.c_void_p(), ctypes.c_void_p()
        one, shape, width = ctypes.c_int(0), (ctypes.c_int64 * 2)(4, 3), (ctypes.c_int * 1)(1)
        assert (
            library.hpccoll_cart_create(c, 1, ctypes.byref(one), ctypes.byref(ctypes.c_int(1)), ctypes.byref(ring)) == 0
        )
        u, v = np.zeros((4, 3)), np.zeros(6)
        assert library.hpccoll_halo_exchange_init(
            u.ctypes.data_as(ctypes.c_void_p), FLOAT64, 2, shape, None, width, 0, ring, ctypes.byref(plan)
        ) == 0  # fmt: skip
        below, above = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        cart = world.cart([world.size], periods=True)
        with cart.halo_exchange_init(v) as halo, cart.halo_exchange_init(u) as shared:
            for step in range(5):
                u[1:3], v[1:5] = [[world.rank + step], [world.rank - step]], world.rank + step
                assert library.hpccoll_start(plan) == 0
                halo.start()
                with pytest.raises(hpccoll.InvalidArgumentError, match="shares memory with a halo exchange, which was"):
                    shared.start()
                halo.wait()
                assert library.hpccoll_plan_wait(plan) == 0
                assert (u[0] == below - step).all() and (u[3] == above + step).all()
                assert (v[0], v[5]) == (below + step, above + step)
            assert library.hpccoll_plan_free(ctypes.byref(plan)) == 0
        assert library.hpccoll_world_free(ctypes.byref(ring)) == 0
        cart.shutdown()
