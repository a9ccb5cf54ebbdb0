# SPDX-License-Identifier: Apache-2.0
"""Every operation, dtype and reduction against NumPy, in all layouts."""

import math
from functools import reduce

import ml_dtypes
import numpy as np
import pytest

import hpccoll
from hpccoll import _core

DTYPES = [np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name) for name in _core.DTYPES]
REDUCTIONS = list(hpccoll.Reduction)
DEFINED = [
    (dtype, op) for code, dtype in enumerate(DTYPES) for op in REDUCTIONS if _core.reduction_defined(op.value, code)
]
NARROW = {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}


def values(dtype, rank, shape, seed=0):
    """What rank `rank` brings: small whole numbers, so that sums and most products are exact in any order."""
    rng = np.random.default_rng([seed, rank, math.prod(shape)])
    low = 0 if dtype.kind in "bu" else -2
    whole = rng.integers(low, 3, shape)
    if dtype.kind == "c":
        return np.asarray(whole + 1j * rng.integers(-2, 3, shape)).astype(dtype)
    return np.asarray(whole).astype(dtype)


def expected(op, parts):
    """The reduction of the ranks' arrays as the documentation defines it."""
    dtype, wide = parts[0].dtype, parts
    if dtype in NARROW:
        wide = [part.astype(np.float32) for part in parts]
    if dtype.kind == "b" and op in (hpccoll.SUM, hpccoll.PRODUCT):
        op = hpccoll.LOR if op == hpccoll.SUM else hpccoll.LAND
    functions = {
        hpccoll.SUM: np.add, hpccoll.AVERAGE: np.add, hpccoll.MIN: np.minimum, hpccoll.MAX: np.maximum,
        hpccoll.PRODUCT: np.multiply, hpccoll.BAND: np.bitwise_and, hpccoll.BOR: np.bitwise_or,
        hpccoll.BXOR: np.bitwise_xor, hpccoll.LAND: np.logical_and, hpccoll.LOR: np.logical_or,
        hpccoll.LXOR: np.logical_xor,
    }  # fmt: skip
    if op in (hpccoll.LAND, hpccoll.LOR, hpccoll.LXOR):
        wide = [part != 0 for part in wide]
    total = reduce(functions[op], wide)
    if op == hpccoll.AVERAGE:
        exact = dtype.kind in "iu"
        total = np.trunc(total.astype(np.float64) / len(parts)) if exact else total / len(parts)
    return total.astype(dtype)


def assert_equal(got, want):
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype in NARROW or want.dtype.kind in "fc":
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        tolerance = 1e-2 if want.dtype in NARROW else 1e-6
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


def test_every_pair_of_dtype_and_reduction(everywhere):
    def program(world):
        for dtype, op in DEFINED:
            parts = [values(dtype, r, (37,)) for r in range(world.size)]
            assert_equal(world.allreduce(parts[world.rank], op), expected(op, parts))

    everywhere(program)


@pytest.mark.parametrize("elements", [0, 1, 3, 15, 4095, 4096, 65_537, 262_144 + 1, 1_000_003])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_allreduce_of_all_sizes(everywhere, elements, dtype):
    def program(world):
        parts = [values(np.dtype(dtype), r, (elements,)) for r in range(world.size)]
        mine = parts[world.rank].copy()
        assert_equal(world.allreduce(mine, name="fresh"), expected(hpccoll.SUM, parts))
        np.testing.assert_array_equal(mine, parts[world.rank])
        assert world.allreduce(mine, name="in place", out=mine) is mine
        assert_equal(mine, expected(hpccoll.SUM, parts))

    everywhere(program)


def test_groups_keep_their_order_and_mix_dtypes(everywhere):
    shapes = [(3,), (), (2, 5), (0,), (1000,), (7, 1, 2)]
    dtypes = [np.float32, np.float64, np.float32, np.int32, np.float16, np.float32]

    def program(world):
        parts = [
            [values(np.dtype(d), r, s, seed) for seed, (d, s) in enumerate(zip(dtypes, shapes, strict=True))]
            for r in range(world.size)
        ]
        results = world.allreduce(parts[world.rank])
        assert isinstance(results, list)
        for result, of_ranks in zip(results, zip(*parts, strict=True), strict=True):
            assert_equal(result, expected(hpccoll.SUM, list(of_ranks)))

    everywhere(program)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allgather_of_uneven_rows(everywhere, dtype):
    def program(world):
        parts = [values(dtype, r, (r * 3 % 5, 2, 3)) for r in range(world.size)]
        assert_equal(world.allgather(parts[world.rank]), np.concatenate(parts))

    everywhere(program)


@pytest.mark.parametrize("rows", [0, 1, 5000, 100_000])
def test_allgather_of_all_sizes(everywhere, rows):
    def program(world):
        parts = [values(np.dtype(np.float64), r, (rows + r,)) for r in range(world.size)]
        out = np.empty(sum(map(len, parts)))
        assert world.allgather(parts[world.rank], out=out) is out
        assert_equal(out, np.concatenate(parts))
        assert_equal(world.allgather(np.float32(world.rank)), np.arange(world.size, dtype=np.float32))

    everywhere(program)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_broadcast_from_every_root(everywhere, dtype):
    def program(world):
        for root in range(world.size):
            for shape in ((), (0,), (5, 3), (70_001,)):
                mine = values(dtype, world.rank, shape)
                assert_equal(world.broadcast(mine, root), values(dtype, root, shape))
                world.broadcast(mine, root, out=mine)
                assert_equal(mine, values(dtype, root, shape))

    everywhere(program)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 30_001])
@pytest.mark.parametrize("op", [hpccoll.SUM, hpccoll.AVERAGE, hpccoll.MAX], ids=str)
def test_reducescatter(everywhere, rows, op):
    def program(world):
        for dtype in (np.float32, np.int16, np.float16):
            parts = [values(np.dtype(dtype), r, (rows, 3)) for r in range(world.size)]
            shares = np.array_split(expected(op, parts), world.size)
            assert_equal(world.reducescatter(parts[world.rank], op), shares[world.rank])

    everywhere(program)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.complex128])
def test_alltoall_with_and_without_splits(everywhere, dtype):
    def program(world):
        p, me = world.size, world.rank
        sends = [[(a * 7 + b * 3) % 5 for b in range(p)] for a in range(p)]
        parts = [values(np.dtype(dtype), a, (sum(sends[a]), 2)) for a in range(p)]
        cuts = [np.split(parts[a], np.cumsum(sends[a])[:-1]) for a in range(p)]
        received, rows = world.alltoall(parts[me], sends[me])
        assert_equal(received, np.concatenate([cuts[a][me] for a in range(p)]))
        assert rows.tolist() == [sends[a][me] for a in range(p)]
        even = values(np.dtype(dtype), me, (2 * p, 4))
        received, rows = world.alltoall(even)
        want = [values(np.dtype(dtype), a, (2 * p, 4))[2 * me : 2 * me + 2] for a in range(p)]
        assert_equal(received, np.concatenate(want))
        assert rows.tolist() == [2] * p

    everywhere(program)


def test_rows_without_elements_are_counted(everywhere):
    def program(world):
        p, me = world.size, world.rank
        for shape in ((0,), (3, 0), (0, 4)):
            mine = np.empty((me + 2, *shape), np.float32)
            assert world.allgather(mine).shape == (sum(range(2, p + 2)), *shape)
            whole = np.empty((2 * p + 1, *shape), np.float32)
            assert world.reducescatter(whole).shape == (2 + (me == 0), *shape)
            assert world.broadcast(whole).shape == whole.shape
            received, rows = world.alltoall(mine, [0] * (p - 1) + [me + 2])
            assert rows.tolist() == [r + 2 if me == p - 1 else 0 for r in range(p)]
            assert received.shape == (sum(rows), *shape)

    everywhere(program)


def test_barrier_and_objects(everywhere):
    def program(world):
        world.barrier()
        assert world.allgather_object({"rank": world.rank}) == [{"rank": r} for r in range(world.size)]
        last = world.size - 1
        assert world.broadcast_object(("x", world.rank), last) == ("x", last)

    everywhere(program)


def test_factors_are_one_rounding(everywhere):
    def program(world):
        x = np.full(100, 3.0, np.float16)
        total = world.allreduce(x, prescale=0.1, postscale=10.0)
        assert_equal(total, np.full(100, 3.0 * world.size, np.float16))
        large = np.full(64, 60_000, np.float16)
        assert_equal(world.allreduce(large, hpccoll.AVERAGE), large)

    everywhere(program)


@pytest.mark.parametrize("compression", [hpccoll.compression.FP16, hpccoll.compression.BF16], ids=str)
def test_compression_rounds_little_and_only_between_nodes(everywhere, compression):
    def program(world):
        for dtype in (np.float32, np.float64):
            parts = [np.random.default_rng(r).standard_normal(50_001).astype(dtype) for r in range(world.size)]
            got = world.allreduce(parts[world.rank], compression=compression)
            assert got.dtype == dtype
            bound = 2.0**-7 if compression is hpccoll.compression.BF16 else 2.0**-10
            scale = sum(np.abs(part) for part in parts)
            assert (np.abs(got - sum(parts)) <= 2 * bound * scale + 1e-6).all()
            if world.local_size == world.size:
                np.testing.assert_array_equal(got, world.allreduce(parts[world.rank]))

    everywhere(program)


def test_deterministic_results_do_not_depend_on_fusion(threads):
    from hpccoll import testing

    def program(world):
        parts = [np.random.default_rng([i, world.rank]).standard_normal(1000 + i).astype(np.float32) for i in range(20)]
        handles = [world.allreduce_async(p, name=str(i)) for i, p in enumerate(parts)]
        return [h.wait().tobytes() for h in handles]

    bits = [
        testing.run(threads(4, nodes="2+2", deterministic=True, fusion_threshold=threshold), program)
        for threshold in (0, 8192, 1 << 20)
    ]
    assert bits[0] == bits[1] == bits[2]
    assert all(one == bits[0][0] for one in bits[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("nodes", ["2+2", "3+1", "1+1+2"])
def test_deterministic_reducescatter_has_the_bits_of_the_allreduce(threads, nodes, dtype):
    from hpccoll import testing

    def program(world):
        parts = [
            np.random.default_rng([i, world.rank]).standard_normal((i * 577 + 3, 5)).astype(dtype) for i in range(6)
        ]
        handles = [world.reducescatter_async(p, name=f"r{i}") for i, p in enumerate(parts)]
        shares = [h.wait() for h in handles]
        for part, share in zip(parts, shares, strict=True):
            total = world.allreduce(part)
            assert share.tobytes() == np.array_split(total, world.size)[world.rank].tobytes()
        return [share.tobytes() for share in shares]

    bits = [
        testing.run(threads(4, nodes=nodes, deterministic=True, fusion_threshold=threshold), program)
        for threshold in (0, 1 << 20)
    ]
    assert bits[0] == bits[1]


@pytest.mark.parametrize("op", [hpccoll.SUM, hpccoll.AVERAGE, hpccoll.MAX], ids=str)
def test_reduce_to_every_root(everywhere, op):
    def program(world):
        for root in range(world.size):
            for dtype, shape in (
                (np.float32, (5, 3)),
                (np.float16, ()),
                (np.int64, (70_001,)),
                (np.int8, (0,)),
            ):
                parts = [values(np.dtype(dtype), r, shape) for r in range(world.size)]
                mine, want = parts[world.rank].copy(), expected(op, parts)
                result = world.reduce(mine, op=op, root=root)
                in_place = world.reduce(mine, op=op, root=root, out=mine)
                if world.rank == root:
                    assert_equal(result, want)
                    assert in_place is mine
                else:
                    assert result is None
                    assert in_place is None
                    want = parts[world.rank]
                assert_equal(mine, want)

    everywhere(program)


def test_reduce_of_a_group_and_of_strided_arrays(everywhere):
    def program(world):
        parts = [[values(np.dtype(d), r, (4, 6)) for d in (np.float32, np.int32)] for r in range(world.size)]
        root, mine = world.size - 1, parts[world.rank]
        outs = [np.empty((6, 4), x.dtype).T for x in mine]
        results = world.reduce([x[::2, ::3] for x in mine], root=root)
        assert (results is None) == (world.reduce(mine, root=root, out=outs) is None)
        assert (results is None) == (world.rank != root)
        for k in range(2) if world.rank == root else ():
            want = expected(hpccoll.SUM, [part[k] for part in parts])
            assert_equal(results[k], want[::2, ::3])
            assert_equal(outs[k], want)

    everywhere(program)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gather_of_uneven_rows_to_every_root(everywhere, dtype):
    def program(world):
        for root in range(world.size):
            parts = [values(dtype, r, (r * 3 % 5, 2, 3)) for r in range(world.size)]
            handle = world.gather_async(parts[world.rank], root)
            result = handle.wait()
            if world.rank != root:
                assert result is None
                with pytest.raises(hpccoll.InvalidArgumentError, match="no rows"):
                    handle.rows()
                continue
            assert_equal(result, np.concatenate(parts))
            assert handle.rows().tolist() == [len(part) for part in parts]

    everywhere(program)


@pytest.mark.parametrize("rows", [0, 1, 50_000])
def test_gather_into_out_and_of_numbers(everywhere, rows):
    def program(world):
        parts = [values(np.dtype(np.float64), r, (rows + r, 2)) for r in range(world.size)]
        for root in range(world.size):
            out = np.zeros((sum(map(len, parts)), 4))[:, ::2]
            result = world.gather(parts[world.rank], root, out=out)
            assert (result is out) == (world.rank == root)
            assert_equal(out, np.concatenate(parts) if world.rank == root else np.zeros_like(out))
            numbers = world.gather(np.int16(world.rank), root)
            if world.rank == root:
                assert_equal(numbers, np.arange(world.size, dtype=np.int16))

    everywhere(program)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatter_from_every_root(everywhere, dtype):
    def program(world):
        p, me = world.size, world.rank
        splits = [(r * 3 + 1) % 4 for r in range(p)]
        for root in range(p):
            whole = values(dtype, root, (sum(splits), 2))
            x = whole if me == root else np.empty((me, 2), dtype)
            mine = np.split(whole, np.cumsum(splits)[:-1])[me]
            handle = world.scatter_async(x, root, splits if me == root else ["ignored"])
            handle.wait()
            assert handle.rows().tolist() == [splits[me] if r == root else 0 for r in range(p)]
            assert_equal(world.scatter(x, root, splits if me == root else None), mine)
            assert_equal(world.scatter(x, root), np.array_split(whole, p)[me])
            out = np.empty((splits[me], 4), dtype)[:, ::2]
            assert world.scatter(x if me == root else None, root, splits, out=out) is out
            assert_equal(out, mine)

    everywhere(program)


@pytest.mark.parametrize("rows", [0, 3, 200_001])
def test_scatter_of_all_sizes(everywhere, rows):
    def program(world):
        whole = np.arange(rows, dtype=np.float64)
        x = whole if world.rank == 0 else np.empty(0)
        assert_equal(world.scatter(x), np.array_split(whole, world.size)[world.rank])

    everywhere(program)


@pytest.mark.parametrize("op", [op for op in REDUCTIONS if op not in (hpccoll.AVERAGE, hpccoll.ADASUM)], ids=str)
def test_scan_and_exscan(everywhere, op):
    def program(world):
        for dtype in (d for d, defined in DEFINED if defined == op):
            for elements in (37, 0):
                parts = [values(dtype, r, (elements,)) for r in range(world.size)]
                mine = parts[world.rank].copy()
                before = world.exscan(mine, op)
                if world.rank:
                    assert_equal(before, expected(op, parts[: world.rank]))
                    assert_equal(world.scan(mine, op), expected(op, parts[: world.rank + 1]))
                else:  # what changes nothing
                    truth = op in (hpccoll.LAND, hpccoll.LOR, hpccoll.LXOR)
                    assert_equal(expected(op, [before, mine]), (mine != 0).astype(dtype) if truth else mine)
                    world.scan(mine, op)

    everywhere(program)


def test_scan_in_place_of_groups_and_of_many_bytes(everywhere):
    def program(world):
        parts = [[values(np.dtype(d), r, (70_001,)) for d in (np.float32, np.int32)] for r in range(world.size)]
        upto = [expected(hpccoll.SUM, [part[k] for part in parts[: world.rank + 1]]) for k in range(2)]
        mine = [x.copy() for x in parts[world.rank]]
        for result, want in zip(world.scan(mine), upto, strict=True):
            assert_equal(result, want)
        assert world.scan(mine[0], out=mine[0]) is mine[0]
        assert_equal(mine[0], upto[0])

    everywhere(program)


def test_reduce_says_what_is_wrong(everywhere):
    def program(world):
        x = np.ones(3)
        for wrong in (world.size, -1, 0.5, None):
            with pytest.raises(hpccoll.InvalidArgumentError, match="root is"):
                world.reduce(x, root=wrong)
        if world.rank == 0:
            with pytest.raises(hpccoll.ResultSizeError, match="out has shape"):
                world.reduce(x, root=0, out=np.ones(4))
        if world.size > 1:
            with pytest.raises(hpccoll.MismatchError, match="root"):
                world.reduce(x, root=int(world.rank == 0), name="roots")
        if world.rank == 0:  # the others have joined: they bring what changes nothing
            assert world.reduce(x, root=0, name="alone").tolist() == [1, 1, 1]
        world.join()

    everywhere(program)


def test_gather_says_what_is_wrong(everywhere):
    def program(world):
        p, me = world.size, world.rank
        if p > 1:
            with pytest.raises(hpccoll.MismatchError, match="columns"):
                world.gather(np.ones((2, 2 + (me == 1))), name="columns")
        if me == 0:
            handle = world.gather_async(np.ones((2, 3)), out=np.ones((1, 3)), name="small")
        else:
            handle = world.gather_async(np.ones((2, 3)), name="small")
        with pytest.raises(hpccoll.ResultSizeError, match=rf"rank 0 .* has an out of 1 rows, its result has {2 * p}"):
            handle.wait()
        if me == 0:
            rows = world.gather_async(np.ones((2, 3)), name="alone")
            assert rows.wait().shape == (2, 3)  # the others have joined: they bring no rows
            assert rows.rows().tolist() == [2] + [0] * (p - 1)
        world.join()

    everywhere(program)


def test_scatter_says_what_is_wrong(everywhere):
    def program(world):
        p, me = world.size, world.rank
        if me == 0:
            for wrong in ([1] * (p + 1), [-1] + [1] * (p - 1), [1.5] * p, [p + 1] * p):
                with pytest.raises(hpccoll.InvalidArgumentError, match="splits"):
                    world.scatter(np.ones(p), 0, wrong)
            with pytest.raises(hpccoll.InvalidArgumentError, match="at least one dimension"):
                world.scatter(np.float32(1), 0)
        else:
            with pytest.raises(hpccoll.InvalidArgumentError, match="that is not the root gives out"):
                world.scatter(None, 0)
        if p > 1:
            with pytest.raises(hpccoll.MismatchError, match="types"):
                world.scatter(np.ones(p, np.float32 if me else np.int32), name="types")
        if me == 0:  # the rows of those that have joined are dropped
            assert world.scatter(np.arange(3 * p), name="alone").tolist() == [0, 1, 2]
        world.join()

    everywhere(program)


@pytest.mark.parametrize("operation", [hpccoll.World.scan, hpccoll.World.exscan])
def test_scans_say_what_is_wrong(everywhere, operation):
    def program(world):
        with pytest.raises(hpccoll.UnsupportedError, match="AVERAGE"):
            operation(world, np.ones(2), hpccoll.AVERAGE)
        with pytest.raises(hpccoll.UnsupportedError, match="BAND of float64"):
            operation(world, np.ones(2), hpccoll.BAND)
        if world.size > 1:
            with pytest.raises(hpccoll.MismatchError, match="lengths"):
                operation(world, np.ones(2 + world.rank), name="lengths")
        last = world.size - 1
        if world.rank == last:  # the others have joined: they do not count
            want = 1 if operation is hpccoll.World.scan else 0
            assert operation(world, np.ones(2), name="alone").tolist() == [want, want]
        world.join()

    everywhere(program)


@pytest.mark.parametrize("op", [hpccoll.AVERAGE, 0])
def test_there_is_no_mean_of_the_ranks_before(everywhere, op):
    """The number of ranks differs; Horovod's 0 is AVERAGE, and a plan is the same operation."""

    def program(world):
        forms = (world.scan, world.exscan, world.scan_async, world.exscan_async)
        for form in (*forms, world.scan_init, world.exscan_init):
            with pytest.raises(hpccoll.UnsupportedError, match="scan: AVERAGE is not defined: use SUM and divide"):
                form(np.ones(3), op)

    everywhere(program)
