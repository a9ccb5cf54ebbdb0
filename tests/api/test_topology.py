# SPDX-License-Identifier: Apache-2.0
"""Grids of ranks, what neighbours exchange, and halos against a serial reference."""

import gc
import itertools
from math import prod

import numpy as np
import pytest

import hpccoll
from hpccoll import PROC_NULL, testing

PARTICLE = np.dtype([("id", "i4"), ("x", "f8", 2)])


@pytest.mark.parametrize(
    ("size", "dims", "expected"),
    [(12, 2, (4, 3)), (16, 3, (4, 2, 2)), (7, 2, (7, 1)), (1, 3, (1, 1, 1)), (24, 3, (4, 3, 2)), (6, [0, 3], (2, 3)),
     (1 << 16, 3, (64, 32, 32)), (360, 3, (9, 8, 5)), (8, [2, 4], (2, 4))],
)  # fmt: skip
def test_dims_are_even(size, dims, expected):
    assert hpccoll.dims_create(size, dims) == expected


@pytest.mark.parametrize(("size", "dims"), [(6, [4, 0]), (6, [2, 2]), (0, 2), (6, []), (6, [-1, 0])])
def test_dims_that_do_not_divide(size, dims):
    with pytest.raises(hpccoll.InvalidArgumentError, match="do not divide"):
        hpccoll.dims_create(size, dims)


def test_coordinates_and_shifts(everywhere):
    def program(world):
        dims = hpccoll.dims_create(world.size, 2)
        cart = world.cart([0, 0], periods=[True, False])
        assert cart and cart.dims == dims and cart.size == world.size and cart.rank == world.rank
        assert cart.rank_of(cart.coords) == cart.rank
        row, column = cart.coords
        assert cart.shift(0) == (
            ((row - 1) % dims[0]) * dims[1] + column, ((row + 1) % dims[0]) * dims[1] + column
        )  # fmt: skip
        below, above = cart.shift(1)
        assert below == (PROC_NULL if column == 0 else world.rank - 1)
        assert above == (PROC_NULL if column == dims[1] - 1 else world.rank + 1)
        assert cart.neighbours == (*cart.shift(0), below, above)
        assert cart.shift(0, dims[0]) == (world.rank, world.rank)
        x = np.full(2, -1.0)  # a shift along the line of a dimension, whose ends need no `if`
        cart.world.sendrecv(np.full(2, float(cart.rank)), above, x, below)
        assert (x == (below if below >= 0 else -1)).all()
        cart.shutdown()

    everywhere(program)


def test_ranks_without_a_place(everywhere):
    def program(world):
        cart = world.cart([1])
        assert bool(cart) == (world.rank == 0)
        if not cart:
            assert (cart.size, cart.rank) == (0, None)
            with pytest.raises(hpccoll.InvalidArgumentError, match="this World is empty here"):
                _ = cart.coords
            with pytest.raises(hpccoll.InvalidArgumentError, match="this World is empty here"):
                cart.halo_exchange(np.zeros(3))
        cart.shutdown()
        with pytest.raises(hpccoll.InvalidArgumentError, match="no grid of the"):
            world.cart([world.size + 1])

    everywhere(program)


def test_ranks_that_differ_are_told(threads):
    def program(world):
        with pytest.raises(hpccoll.MismatchError, match=r"cart: rank 0 says .*\[\[2\], \[False\]\], rank 1 says"):
            world.cart([2 - world.rank])
        for dims, periods in (([5], False), (["2"], False), (2, False), ([2], [True, False]), ([0, 3], False)):
            with pytest.raises(hpccoll.MismatchError, match=r"cart: rank 0 says .*\[\[2\], \[False\]\], rank 1 says"):
                world.cart(dims if world.rank else [2], periods if world.rank else False)
        with pytest.raises(TypeError, match="not iterable"):
            world.cart(2)
        cart = world.cart(iter([2]), iter([False]))
        with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has .dtype, width, corners. .*float64.*rank 1 has"):
            cart.halo_exchange_init(np.zeros(9, "f8" if world.rank == 0 else "f4"))
        for array, width in ((np.zeros(9), 4), (np.zeros(9), (1, 1)), (np.zeros(9), "a"), (np.zeros(()), 1), (None, 1)):
            given = (np.zeros(9), 1) if world.rank == 0 else (array, width)
            with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has .dtype, width, corners. .*, rank 1 has \w+ "):
                cart.halo_exchange_init(*given)
            with pytest.raises(hpccoll.InvalidArgumentError, match="halo"):
                cart.halo_exchange_init(array, width)
        grid = world.cart([2, 1])
        with pytest.raises(hpccoll.MismatchError, match=r"rank 0 has a halo of shape \(1, 5\) for rank 1, whose side"):
            grid.halo_exchange_init(np.zeros((5, 5 + world.rank)))
        with pytest.raises(hpccoll.ResultSizeError, match="bytes came for a receive of"):
            grid.halo_exchange(np.zeros((5, 5 + world.rank)))
        cart.shutdown()
        grid.shutdown()

    testing.run(threads(2), program)


def test_neighbourhood_collectives(everywhere):
    def program(world):
        cart = world.cart([0, 0], periods=[True, False])
        peers = cart.neighbours
        got = cart.neighbor_allgather(np.full(3, cart.rank))
        assert got.tolist() == [[max(peer, 0)] * 3 for peer in peers]
        rows = np.array([10 * cart.rank + side for side in range(4)])
        got = cart.neighbor_alltoall(rows, out=np.full(4, -1))
        assert got.tolist() == [-1 if peer < 0 else 10 * peer + (side ^ 1) for side, peer in enumerate(peers)]
        assert cart.neighbor_allgather(2.5).shape == (4,)
        with pytest.raises(hpccoll.InvalidArgumentError, match="takes 4 rows"):
            cart.neighbor_alltoall(np.zeros(3))
        with pytest.raises(hpccoll.ResultSizeError, match="it must be contiguous"):
            cart.neighbor_alltoall(np.zeros(4), out=np.zeros(3))
        cart.shutdown()

    everywhere(program)


@pytest.mark.parametrize("n", [3, 20_000])  # a small message leaves at once, a large one when it is received
def test_neighbourhood_collectives_in_place(everywhere, n):
    """A row that came in from one side was sent to the other one."""

    def program(world):
        cart = world.cart([world.size], periods=[True])
        below, above = (cart.rank - 1) % cart.size, (cart.rank + 1) % cart.size
        rows = np.add.outer([2.0 * cart.rank, 2.0 * cart.rank + 1], np.zeros(n))
        assert cart.neighbor_alltoall(rows, out=rows) is rows
        assert (rows == np.add.outer([2.0 * below + 1, 2.0 * above], np.zeros(n))).all()
        rows[:] = cart.rank
        cart.neighbor_allgather(rows[0], out=rows)
        assert (rows == np.add.outer([below, above], np.zeros(n))).all()
        cart.shutdown()

    everywhere(program)


def test_arrays_that_neighbours_do_not_exchange(threads):
    def program(world):
        cart = world.cart([2], periods=[True])
        masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
        for call in (cart.neighbor_allgather, cart.neighbor_alltoall, cart.halo_exchange, cart.halo_exchange_init):
            with pytest.raises(hpccoll.UnsupportedError, match=r"a masked array, and masks do not travel: use \w+.fil"):
                call(masked)
        read_only = np.zeros(2)
        read_only.flags.writeable = False
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"^out \(a numpy.ndarray\) is read-only"):
            cart.neighbor_allgather(1.0, out=read_only)
        with pytest.raises(hpccoll.InvalidArgumentError, match="rank is 2: the grid has ranks 0 to 1"):
            cart.coords_of(2)
        cart.shutdown()

    testing.run(threads(2), program)


@pytest.mark.filterwarnings("error")
def test_several_errors_of_neighbours_are_one(threads):
    """The program has no handle that it could have dropped."""

    def program(world):
        cart = world.cart([2], periods=[True])
        with pytest.raises(hpccoll.ResultSizeError, match="a message of"):
            cart.neighbor_allgather(np.ones(2 + cart.rank))
        cart.shutdown()
        assert world.allreduce(1) == 2

    testing.run(threads(2), program)


# ---- halos ----------------------------------------------------------------------------------------------


def whole(shape, widths, periods, dtype, rng):
    """A field with its halo all around: values at random, and as the program wants it at the ends of the grid."""
    padded = [n + 2 * w for n, w in zip(shape, widths, strict=False)] + list(shape[len(widths) :])
    values = rng.integers(1, 1000, padded)
    if dtype.names:
        field = np.zeros(padded, dtype)
        field["id"] = values
        field["x"] = values[..., None] + np.array([0.25, 0.5])
    else:
        field = values.astype(dtype)
    for d, (w, n) in enumerate(zip(widths, shape, strict=False)):
        if periods[d] and w:
            at = [slice(None)] * len(shape)
            for to, start in ((slice(0, w), n), (slice(n + w, None), w)):
                at[d] = slice(start, start + w)
                source = field[tuple(at)].copy()
                at[d] = to
                field[tuple(at)] = source
    return field


def one_case(world, seed):
    """A grid, an array and its halo at random, the same on all ranks; the array may be a strided view."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 4))
    dims = hpccoll.dims_create(world.size, ndim)
    dims = tuple(int(n) for n in rng.permutation(dims))
    periods = [bool(p) for p in rng.integers(0, 2, ndim)]
    widths = [int(w) for w in rng.integers(0, 3, ndim)]
    corners = bool(rng.integers(0, 2))
    dtype = np.dtype(["f8", "f4", "i2", "c16", PARTICLE, "g"][rng.integers(0, 6)])
    more = int(rng.integers(0, 2))
    local = [max(w, 1) + int(rng.integers(0, 4)) for w in widths]
    shape = [n * k for n, k in zip(dims, local, strict=True)] + [3] * more
    return dims, periods, widths, corners, dtype, local, whole(shape, widths, periods, dtype, rng)


def expected_part(part, mine, widths, corners, cart):
    """What this rank must have: all of its window of the field; without corners only the faces are new."""
    want = mine.copy()
    ndim = len(widths)
    for signs in itertools.product((-1, 0, 1), repeat=ndim):
        moved = [d for d in range(ndim) if signs[d]]
        if not moved or any(widths[d] == 0 for d in moved) or (len(moved) > 1 and not corners):
            continue
        if all(cart.shift(d)[0 if signs[d] < 0 else 1] == PROC_NULL for d in moved):
            continue
        at = tuple(
            slice(0, w) if s < 0 else slice(n - w, n) if s > 0 else slice(w, n - w)
            for s, w, n in zip(signs, widths, mine.shape, strict=False)
        )
        want[at] = part[at]
    return want


@pytest.mark.parametrize("seed", range(6))
def test_halos_against_the_whole_field(everywhere, seed):
    def program(world):
        for case in range(3):
            dims, periods, widths, corners, dtype, local, field = one_case(world, [seed, case])
            cart = world.cart(dims, periods)
            at = tuple(slice(c * n, c * n + n + 2 * w) for c, n, w in zip(cart.coords, local, widths, strict=True))
            part = field[at]
            mine = np.zeros(part.shape, dtype) if case % 2 else np.zeros((*part.shape, 2), dtype)[..., 1]
            inside = tuple(slice(w, n - w) for w, n in zip(widths, mine.shape, strict=False))
            mine[...] = part[...]
            for d, w in enumerate(widths):  # what neighbours have is not known here yet
                for side, peer in zip((slice(0, w), slice(mine.shape[d] - w, None)), cart.shift(d), strict=True):
                    if peer != PROC_NULL and w:
                        mine[(slice(None),) * d + (side,)] = np.zeros((), dtype)
            before = mine.copy()
            want = expected_part(part, before, widths, corners, cart)
            halo = cart.halo_exchange_init(mine, widths, corners=corners)
            for _ in range(2):
                mine[...] = before
                halo()
                assert (mine == want).all()
            mine[...] = before
            halo.start()
            assert (mine[inside] == part[inside]).all()
            halo.wait()
            assert (mine == want).all()
            for _ in range(2):  # the second time the sides are known
                mine = before.copy()
                cart.halo_exchange(mine, widths, corners=corners)
                assert (mine == want).all()
            cart.shutdown()

    everywhere(program)


def test_wrong_halos(threads):
    (world,) = threads(1)
    cart = world.cart([1, 1])
    read_only = np.zeros((5, 5))
    read_only.flags.writeable = False
    for array in (np.zeros(5), [[1.0]]):
        with pytest.raises(hpccoll.InvalidArgumentError, match="takes a NumPy array of at least 2"):
            cart.halo_exchange(array)
    for call in (cart.halo_exchange, cart.halo_exchange_init):
        with pytest.raises(hpccoll.InvalidArgumentError, match="array is read-only"):
            call(read_only)
        with pytest.raises(hpccoll.UnsupportedError, match="holds Python objects"):
            call(np.full((5, 5), None))
    for width in (2, (1, 1, 1), -1, (1, 2)):
        with pytest.raises(hpccoll.InvalidArgumentError, match="has no halo of width"):
            cart.halo_exchange(np.zeros((5, 5)), width)
    halo = cart.halo_exchange_init(np.zeros((5, 5)))
    with pytest.raises(hpccoll.InvalidArgumentError, match="was not started"):
        halo.wait()
    halo.start()
    with pytest.raises(hpccoll.InvalidArgumentError, match="started twice"):
        halo.start()
    halo.wait()
    cart.shutdown()
    assert prod(cart.dims) == 1


def test_a_side_of_another_size_holds_up_no_other_neighbour(threads):
    """Ranks 0 and 2 differ in the first dimension. Ranks 1 and 3 agree there, and then wait for 0 and 2."""

    def program(world):
        cart = world.cart([2, 2])
        dtype = np.float32 if world.rank == 0 else np.float64
        u = np.full((4, 4), world.rank, dtype)
        try:
            cart.halo_exchange(u)
        except hpccoll.HpccollError as error:
            said = type(error).__name__
        else:
            said = "fine"
        v = np.full((4, 4), float(world.rank))
        cart.halo_exchange(v)
        across, along = (
            cart.rank_of([1 - cart.coords[0], cart.coords[1]]),
            cart.rank_of([cart.coords[0], 1 - cart.coords[1]]),
        )
        assert v[-1 if cart.coords[0] == 0 else 0, 1] == across
        assert v[1, -1 if cart.coords[1] == 0 else 0] == along
        cart.shutdown()
        return said

    assert testing.run(threads(4), program) == ["MismatchError", "MismatchError", "MismatchError", "fine"]


# ---- plans in shared memory ---------------------------------------------------------------------------------


def test_halo_plans_between_neighbours_send_nothing(threads):
    """Twice the same neighbour, strided faces, starts ahead of the others, and more than one plan at once."""

    def program(world):
        cart = world.cart([world.size], periods=True)
        fields = [np.zeros((3, 6)), np.zeros((2, 5, 4), "i2")]
        with cart.halo_exchange_init(fields[0].T) as one, cart.halo_exchange_init(fields[1][0], 1) as other:
            before = world.stats()
            for step in range(40):
                fields[0][:, 1:-1], fields[1][0, 1:-1] = world.rank + step, 10 * world.rank + step
                other.start()
                one()
                other.wait()
                below, above = (world.rank - 1) % world.size, (world.rank + 1) % world.size
                assert (fields[0][:, 0] == below + step).all() and (fields[0][:, -1] == above + step).all()
                assert (fields[1][0, 0] == 10 * below + step).all() and (fields[1][0, -1] == 10 * above + step).all()
            after = world.stats()
            assert after["p2p_ops"] == before["p2p_ops"] and after["plan_starts"] == before["plan_starts"] + 160
        cart.shutdown()

    testing.run(threads(2), program)
    testing.run(threads(3), program)


def test_halo_plans_give_their_memory_back():
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("/hpccoll-" in line and "-halo-" in line for line in maps)

    def program(world):
        cart = world.cart([world.size])
        cart.halo_exchange_init(np.zeros(9)).free()
        return cart.halo_exchange_init(np.zeros(9))  # freed with the World

    gc.collect()
    before = mapped()
    plans = testing.make_and_run(2, program)
    assert plans.pop() is not None
    del plans
    gc.collect()
    assert mapped() <= before


def test_a_wait_after_the_end_of_the_world_says_so():
    def program(world):
        halo = world.cart([world.size]).halo_exchange_init(np.zeros(9))
        halo.start()
        return halo  # the World ends

    for halo in testing.make_and_run(2, program):
        with pytest.raises(hpccoll.ShutDownError):
            halo.wait()
        with pytest.raises(hpccoll.ShutDownError):
            halo.start()
        halo.free()


def test_a_neighbour_that_does_not_start_is_reported(threads, heard):
    def program(world):
        cart = world.cart([world.size])
        with cart.halo_exchange_init(np.zeros(9)) as halo:
            if world.rank == 1:
                heard(r"rank 0: a start of .*'halo exchange with rank 1' awaits rank 1 \(")
            halo()
        cart.shutdown()

    testing.run(threads(2, stall_warning=0.2), program)


def test_numbers_of_numpy_are_numbers(threads):
    """As an extent or a width that a program has calculated."""
    one, two = np.int64(1), np.int32(2)
    assert hpccoll.dims_create(np.int64(12), two) == (4, 3)
    assert all(type(n) is int for n in hpccoll.dims_create(np.int64(12), two))

    def program(world):
        assert world.shared_array(two).shape == (2,)
        cart = world.cart([two])
        u = np.full(4, float(world.rank))
        cart.halo_exchange(u, one)
        plan = cart.halo_exchange_init(u, one if world.rank else 1)
        plan()
        assert u.tolist() == ([0, 0, 0, 1] if world.rank == 0 else [0, 1, 1, 1])
        assert (cart.rank_of([one]), cart.shift(np.int64(0), -one)) == (1, cart.shift(0)[::-1])
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"width 1.5 of a halo: a whole number, or one per"):
            cart.halo_exchange(u, 1.5)
        for wrong in (lambda: cart.rank_of([0.5]), lambda: cart.shift(0, 1.5), lambda: cart.shift(0.0)):
            with pytest.raises(TypeError, match="float"):
                wrong()

    testing.run(threads(2), program)
