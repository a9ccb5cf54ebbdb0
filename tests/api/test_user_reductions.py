# SPDX-License-Identifier: Apache-2.0
"""Reductions of the program's own, compiled and in Python, and MINLOC and MAXLOC."""

import ctypes
from functools import reduce

import numpy as np
import pytest

import hpccoll
from hpccoll import MAXLOC, MINLOC, UserReduction, testing, value_index

SIZES = [0, 3, 20_001]


def multiply(a, b):
    out = np.empty_like(b)
    out["m"] = a["m"] @ b["m"]
    return out


def test_not_commutative_in_the_order_of_the_ranks(everywhere):
    product = UserReduction(multiply)

    def program(world):
        for n in SIZES:
            x = [np.zeros(n, [("m", "i8", (2, 2))]) for _ in range(world.size)]
            for r in range(world.size):
                x[r]["m"] = np.random.default_rng([r, n]).integers(-1, 2, (n, 2, 2))
            mine, total = x[world.rank], reduce(multiply, x)
            before = mine.copy()
            assert (world.allreduce(mine, product) == total).all()
            root = world.size - 1
            got = world.reduce(mine, op=product, root=root, name="product")
            assert (got is None) if world.rank != root else (got == total).all()
            assert (world.scan(mine, product) == reduce(multiply, x[: world.rank + 1])).all()
            if world.rank:
                got = world.exscan(mine, product)
                assert (got == reduce(multiply, x[: world.rank])).all()
            else:
                world.exscan(mine, product)
            rows = np.array_split(total, world.size)[world.rank]
            assert (world.reducescatter(mine, product) == rows).all()
            handle = world.allreduce_async(mine, product, name="later")
            assert (handle.wait(60) == total).all()
            assert handle.done() and handle.wait() is handle.wait()
            assert (mine == before).all()
            assert world.allreduce(mine, product, out=mine) is mine
            assert (mine == total).all()

    everywhere(program)


def test_plans_of_every_operation(everywhere):
    """MPI 4.0, 6.13: each start reduces the values that the arrays have then, in the order of the ranks."""
    product = UserReduction(multiply)

    def program(world):
        size, me, root = world.size, world.rank, world.size - 1
        for n in SIZES:
            x = np.zeros((size, n), [("m", "i8", (2, 2))])
            mine = x[me]
            outs = [np.zeros_like(mine) for _ in range(2)]
            with (
                world.allreduce_init(mine, product, out=outs[0]) as total,
                world.reduce_init(mine, op=product, root=root) as at_root,
                world.reducescatter_init(mine, product) as rows,
                world.scan_init(mine, product) as here,
                world.exscan_init(mine, product) as before,
                world.exscan_init(mine, product, out=outs[1]) as before_in_out,
            ):
                for step in range(3):
                    for rank in range(size):
                        x[rank]["m"] = np.random.default_rng([rank, n, step]).integers(-1, 2, (n, 2, 2))
                    wanted = [reduce(multiply, x[: rank + 1]) for rank in range(size)]
                    assert total() is outs[0] and (outs[0] == wanted[-1]).all()
                    got = at_root()
                    assert (got == wanted[-1]).all() if me == root else got is None
                    assert (rows() == np.array_split(wanted[-1], size)[me]).all()
                    assert (here() == wanted[me]).all()
                    got = before()
                    assert (got == wanted[me - 1]).all() if me else got is None and before.wait() is None
                    assert before_in_out() is outs[1]
                    assert (outs[1] == wanted[me - 1]).all() if me else not outs[1]["m"].any()
            with world.allreduce_init(value_index(1.5, me), MAXLOC) as largest:
                assert largest()["index"] == 0

    everywhere(program)


def test_numpy_functions_and_numbers(everywhere):
    def program(world):
        hypot = UserReduction(np.hypot)
        assert world.allreduce(1.0, hypot) == pytest.approx(world.size**0.5)
        got = world.allreduce(np.ones((2, 3), np.longdouble), UserReduction(np.add))
        assert got.dtype == np.longdouble and (got == world.size).all()
        assert repr(hypot) == "<hpccoll.UserReduction hypot>"

    everywhere(program)


@pytest.fixture(scope="module")
def saturating(build_c, tmp_path_factory):
    """A C function, which adds bytes and stays at the largest one."""
    source = tmp_path_factory.mktemp("user") / "saturating.c"
    source.write_text(
        "#include <stdint.h>\n#include <sys/types.h>\n"
        "void saturate(const void *in, void *inout, ssize_t n) {\n"
        "    const uint8_t *a = in; uint8_t *b = inout;\n"
        "    for (ssize_t i = 0; i < n; i++) b[i] = a[i] + b[i] > 255 ? 255 : (uint8_t)(a[i] + b[i]);\n}\n"
    )
    return build_c(str(source), flags=("-shared", "-fPIC"))


def test_a_function_in_c(saturating, threads):
    function = ctypes.CDLL(str(saturating)).saturate
    address = ctypes.cast(function, ctypes.c_void_p).value
    compiled = type("Compiled", (), {"address": address})()  # as a cfunc of Numba

    def program(world):
        x = np.full(70_000, 100, np.uint8)
        for op in (UserReduction(function), UserReduction(address), UserReduction(compiled, name="saturate")):
            assert (world.allreduce(x, op) == min(255, 100 * world.size)).all()
            assert (world.scan(x[:5], op) == min(255, 100 * (world.rank + 1))).all()
        assert (x == 100).all()

    testing.run(threads(3, nodes="2+1"), program)


@pytest.mark.slow
def test_a_cfunc_of_numba(threads):
    numba = pytest.importorskip("numba", reason="pip install numba")
    pointer = numba.types.CPointer(numba.types.float64)

    @numba.cfunc(numba.types.void(pointer, pointer, numba.types.int64))
    def hypot(given, inout, n):
        a, b = numba.carray(given, n), numba.carray(inout, n)
        for i in range(n):
            b[i] = np.hypot(a[i], b[i])

    def program(world):
        for n in (3, 70_000):
            got = world.allreduce(np.full(n, 2.0), UserReduction(hypot))
            assert np.allclose(got, 2 * np.sqrt(world.size), rtol=1e-15)

    testing.run(threads(3, nodes="2+1"), program)


@pytest.mark.parametrize("n", [1, 10_000])
def test_places_of_extremes(everywhere, n):
    def program(world):
        values = [np.random.default_rng([r, n]).integers(0, 5, n).astype("f4") for r in range(world.size)]
        pairs = value_index(values[world.rank], world.rank)
        stack = np.stack(values)
        for op, best, where in ((MINLOC, stack.min(0), stack.argmin(0)), (MAXLOC, stack.max(0), stack.argmax(0))):
            got = world.allreduce(pairs, op)
            assert got.dtype == pairs.dtype
            assert (got["value"] == best).all() and (got["index"] == where).all()
        one = world.allreduce(value_index(np.nan if world.rank == world.size - 1 else 1.0, world.rank), MINLOC)
        assert np.isnan(one["value"]) and one["index"] == world.size - 1

    everywhere(program)


# ---- functions that mix elements -------------------------------------------------------------------------


def top(a, b):
    return np.sort(np.concatenate([a.ravel(), b.ravel()]))[-a.size :].reshape(a.shape)


def merge(a, b):
    return np.sort((a + b).ravel()).reshape(a.shape)


def running(a, b):
    return np.cumsum(a + b).reshape(a.shape)


def about_the_mean(a, b):
    return a + b - b.mean()


def normalised(a, b):
    return a + b / np.abs(b).max()


def at_its_place(a, b):
    return a + b * np.arange(a.size).reshape(a.shape)


MIXING = [top, merge, running, about_the_mean, normalised, at_its_place]


def mixed(function, n, size):
    """The ranks' arrays, and what NumPy makes of those of the first ranks."""
    x = [np.random.default_rng([r, n]).standard_normal(n) for r in range(size)]
    return x, [reduce(function, x[: r + 1]) for r in range(size)]


def calls(world, x, op, out):
    """Each call that takes a reduction of the program's own, as a function without arguments."""
    root = world.size - 1
    return {
        "allreduce": lambda: world.allreduce(x, out=out, op=op),
        "named": lambda: world.allreduce(x, name="mixed", op=op),
        "async": lambda: world.allreduce_async(x, name="later", out=out, op=op).wait(60),
        "reduce": lambda: world.reduce(x, root=root, op=op),
        "reducescatter": lambda: world.reducescatter(x, op=op),
        "scan": lambda: world.scan(x, op=op),
        "exscan": lambda: world.exscan(x, op=op),
        "plan": lambda: world.allreduce_init(x, op, out=out)(),
    }


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 1000, 8191, 8192, 100_000])
def test_functions_that_mix_elements_are_refused(threads, n):
    """Also where the arrays are small enough to be given whole; nothing is written, on no rank."""

    def program(world):
        for function in MIXING:
            x, out = mixed(function, n, world.size)[0][world.rank], np.full(n, 7.0)
            for call in calls(world, x, UserReduction(function), out).values():
                with pytest.raises(
                    hpccoll.UnsupportedError, match=f"UserReduction {function.__name__}> mixes .*elementwise=False"
                ):
                    call()
            assert (out == 7).all()
        assert world.allreduce(1) == world.size

    testing.run(threads(3, nodes="2+1"), program)


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 8191, 8192, 30_000])
def test_functions_that_mix_elements_get_whole_arrays(everywhere, n):
    def program(world):
        size, me = world.size, world.rank
        for function in MIXING:
            x, wanted = mixed(function, n, size)
            total, op = wanted[-1], UserReduction(function, elementwise=False)
            wants = {
                "reduce": total if me == size - 1 else None,
                "reducescatter": np.array_split(total, size)[me],
                "scan": wanted[me],
                "exscan": wanted[me - 1] if me else None,
            }
            for name, call in calls(world, x[me], op, None).items():
                got, want = call(), wants.get(name, total)
                if name != "exscan" or me:
                    np.testing.assert_array_equal(got, want, f"{name} {function.__name__}")

    everywhere(program)


def test_what_whole_arrays_are_given_to_keeps_its_shape(threads):
    def program(world):
        rng = np.random.default_rng(world.rank)
        x = [np.random.default_rng(r).integers(-2, 3, (2500, 2, 2)) for r in range(world.size)]
        product = UserReduction(np.matmul, elementwise=False)
        assert (world.allreduce(x[world.rank], product) == reduce(np.matmul, x)).all()
        with pytest.raises(hpccoll.UnsupportedError) as refused:
            world.allreduce(rng.random((4, 2, 2)), UserReduction(np.matmul))
        assert "elementwise=False" in refused.value.__notes__[0]

    testing.run(threads(3), program)


def test_the_check_waits_for_elements_that_differ(threads):
    """Most functions of equal ones give the same; one element that differs is found in a large array."""

    def program(world):
        op, x = UserReduction(top), np.zeros(50_000)
        assert (world.allreduce(x, op) == 0).all()
        x[40_001] = 1
        with pytest.raises(hpccoll.UnsupportedError, match="top> mixes the elements"):
            world.allreduce(x, op)

    testing.run(threads(2), program)


def test_elementwise_functions_are_checked_once_per_dtype(threads):
    calls_of = []

    def program(world):
        def add(a, b):
            calls_of.append((world.rank, len(a)))
            return a + b

        op = UserReduction(add)
        for dtype in ("f8", "f4", "c16", "i4", "M8[s]") * 2:
            x = np.arange(300).astype(dtype) if dtype != "M8[s]" else np.arange(300).astype("m8[s]")
            assert (world.allreduce(x, op) == world.size * x).all()
        return sum(rank == world.rank for rank, n in calls_of)

    once = 3 * (
        1 + 2 + 2 + 9
    )  # three pairs of arrays, each whole, in halves, in two parts, in eight elements and a rest
    assert testing.run(threads(2), program) == [5 * once + 10] * 2


def rounds_elsewhere(a, b):
    """Vector code of four elements, whose last digit differs from that of the code for the rest."""
    out = a * b
    out[len(out) // 4 * 4 :] *= 1 + np.finfo(float).eps
    return out


@pytest.mark.parametrize("function", [rounds_elsewhere, lambda a, b: np.exp(np.sin(a)) * b])
def test_roundings_and_nan_are_not_taken_for_mixing(threads, function):
    def program(world):
        x = [np.linspace(1, 3, 20_000) + r for r in range(world.size)]
        for part in x:
            part[::7] = np.nan
        got = world.allreduce(x[world.rank], UserReduction(function))
        np.testing.assert_allclose(got, reduce(function, x), 1e-14)

    testing.run(threads(2), program)


def test_ranks_that_say_different_things_of_their_elements(threads):
    def program(world):
        op = UserReduction(np.add, elementwise=world.rank == 0)
        with pytest.raises(
            hpccoll.MismatchError, match=r"rank 0 asks .* of float64\[3\], rank 1 for .* of whole arrays"
        ):
            world.allreduce(np.zeros(3), op)

    testing.run(threads(2), program)


def test_ranks_that_have_joined_bring_nothing(threads):
    def program(world):
        if world.rank != 1:
            for n in (3, 20_000):
                got = world.allreduce(np.ones(n), UserReduction(np.add), name="sum")
                assert (got == world.size - 1).all()
        world.join()

    testing.run(threads(3), program)


def test_its_bytes_match_no_other_call(threads):
    """An allgather of bytes on another rank gets an error, and not what this one says of its reduction."""

    def program(world):
        whole = hpccoll.UserReduction(np.hypot, elementwise=False)
        with pytest.raises(hpccoll.MismatchError, match=r"uint8\[\*\] of a user reduction.*\(type differs\)"):
            world.allreduce(np.ones(3), whole) if world.rank else world.allgather(np.full(128, 255, np.uint8))
        assert (world.allreduce(np.full(3, 2.0), whole) == np.hypot(2.0, 2.0)).all()

    testing.run(threads(2), program)


def test_wrong_calls(threads):
    def program(world):
        op = UserReduction(np.maximum)
        with pytest.raises(
            hpccoll.MismatchError, match=r"rank 0 asks for allreduce with maximum of float64\[3\], rank 1"
        ):
            world.allreduce(np.zeros(3 + world.rank), op)
        with pytest.raises(hpccoll.MismatchError, match="rank 1 for allreduce with minimum"):
            world.allreduce(np.zeros(3), UserReduction(np.minimum) if world.rank else op, name="x")
        with pytest.raises(hpccoll.MismatchError, match=r"to rank 0, rank 1 for .* to rank 1"):
            world.reduce(np.zeros(3), op=op, root=world.rank)
        with pytest.raises(hpccoll.UnsupportedError, match="takes one array, not a group"):
            world.allreduce([np.zeros(3)], op)
        with pytest.raises(hpccoll.UnsupportedError, match="maximum has no prescale"):
            world.allreduce(np.zeros(3), op, prescale=2.0)
        with pytest.raises(hpccoll.UnsupportedError, match="maximum has no compression"):
            world.allreduce(np.zeros(3), op, compression=hpccoll.compression.FP16)
        with pytest.raises(hpccoll.UnsupportedError, match="MINLOC of dtype float64 is not defined: it takes pairs"):
            world.allreduce(np.zeros(3), MINLOC)
        with pytest.raises(hpccoll.UnsupportedError, match="gives bool"):
            world.allreduce(np.zeros(3), UserReduction(np.greater))
        with pytest.raises(hpccoll.ResultSizeError, match=r"out has shape \(2,\), the result has \(3,\)"):
            world.allreduce(np.zeros(3), op, out=np.zeros(2))
        with pytest.raises(ZeroDivisionError):
            world.allreduce(np.zeros(3), UserReduction(lambda a, b: 1 // 0))
        assert world.allreduce(1) == 2

    testing.run(threads(2), program)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", [None, "divided"])
def test_the_others_hear_of_a_function_that_fails_on_its_share(threads, name, checked):
    """Two ranks wait for the share of the third, which fails on it, or in the check before; the World goes on."""

    def program(world):
        def fails(a, b):
            return 1 // 0 if world.rank == 1 and (len(a) > 1000 or not checked) else np.hypot(a, b)

        op = UserReduction(fails)
        if checked:
            world.allreduce(np.arange(100.0), op)  # it works element by element
        x = np.arange(30_000.0)
        if world.rank == 1:
            with pytest.raises(ZeroDivisionError):
                world.allreduce(x, op, name=name)
        else:
            with pytest.raises(hpccoll.MismatchError, match=r"rank 1 has refused this call: ZeroDivisionError"):
                world.allreduce(x, op, name=name)
        assert world.allreduce(1) == 3

    testing.run(threads(3), program)


def test_the_others_hear_of_a_function_that_fails_while_a_plan_is_made(threads):
    """It fails in the check that it works element by element; the others waited for this rank to make the plan."""

    def program(world):
        def fails(a, b):
            return 1 // 0 if world.rank == 1 else np.hypot(a, b)

        op, text = UserReduction(fails), r"scan_init: rank 1 has refused this call: ZeroDivisionError"
        with pytest.raises(ZeroDivisionError) if world.rank == 1 else pytest.raises(hpccoll.MismatchError, match=text):
            world.scan_init(np.arange(100.0), op)
        assert world.allreduce(1) == 3

    testing.run(threads(3), program)


def test_ranks_that_wait_and_ranks_that_do_not(threads):
    """A small call is the same operation in both forms; a large one divides its work where the caller waits."""

    def program(world):
        op, small, large = UserReduction(np.hypot), np.full(9, 3.0), np.ones(30_000)
        for _ in range(2):
            got = world.allreduce_async(small, op).wait() if world.rank else world.allreduce(small, op)
            np.testing.assert_allclose(got, np.sqrt(18), rtol=1e-15)
            with pytest.raises(hpccoll.MismatchError, match="rank 0 waits for it in the call, rank 1 does not"):
                _ = world.allreduce_async(large, op).wait() if world.rank else world.allreduce(large, op)

    testing.run(threads(2), program)


def test_memory_in_flight_and_strided_arrays(threads):
    def program(world):
        op, table = UserReduction(np.maximum), np.zeros((4, 3))
        x = np.arange(12.0).reshape(4, 3) + world.rank
        handle = world.allreduce_async(x[:, 1], op, out=table[:, 2])
        with pytest.raises(hpccoll.InvalidArgumentError, match=r"shares memory with an array of allgather"):
            world.recv_async(table, 1 - world.rank)
        assert handle.wait() is not None
        np.testing.assert_array_equal(table, np.outer(x[:, 1] + 1 - world.rank, [0, 0, 1]))
        with world.scan_init(x.T, op, out=table.T) as plan:
            plan()
        np.testing.assert_array_equal(table, x)

    testing.run(threads(2), program)


def test_pairs_of_masked_arrays_are_refused():
    """MINLOC would find a value that the mask hides."""
    hidden = np.ma.array([1, 2], mask=[True, False])
    for pair in ((hidden, 0), (0, hidden)):
        with pytest.raises(hpccoll.UnsupportedError, match="is a masked array"):
            hpccoll.value_index(*pair)


@pytest.mark.parametrize("function", [np.sqrt, np.divmod, np.modf])
def test_numpy_functions_of_other_than_two_arrays_are_refused(function):
    """The second argument of np.sqrt is where the result goes: it was the root of one rank's array."""
    with pytest.raises(hpccoll.InvalidArgumentError, match=r"it takes \d and gives \d, not two and one"):
        UserReduction(function)


def test_what_is_no_user_reduction():
    for wrong in ("x", 0, None):
        with pytest.raises(hpccoll.InvalidArgumentError, match="UserReduction"):
            UserReduction(wrong)
