# SPDX-License-Identifier: Apache-2.0
"""The contract of a front end, part 1: operations, on every dtype, in process sets.

Each rank knows what the others have and works out the result with NumPy.
"""

from functools import reduce
from typing import Any

import numpy as np
import pytest

import hpccoll.horovod as hvd
from hpccoll.frontend.handles import poll, synchronize
from hpccoll.frontend.reductions import Reduction

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]

OPS = {hvd.Sum: np.add, hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}


def values(rank: int, shape: tuple[int, ...], low: int = 0) -> np.ndarray:
    """Small whole numbers, exact in any dtype, also added up or multiplied by four ranks."""
    return np.random.default_rng(rank).integers(low, 4, shape)


def wide(dtype: str) -> str:
    return "bool" if dtype == "bool" else "complex128" if "complex" in dtype else "float64"


def reduced(op: Reduction, dtype: str, inputs: list[np.ndarray]) -> np.ndarray:
    result = reduce(OPS[op], [np.asarray(x != 0 if dtype == "bool" else x, np.int64) for x in inputs])
    return result != 0 if dtype == "bool" else result


def same(front: Any, tensor: Any, want: Any, dtype: str = "") -> None:
    """The tensor has these values, exactly, and this dtype."""
    np.testing.assert_array_equal(front.array(tensor), np.asarray(want))
    assert not dtype or front.adapter.dtype(tensor) == dtype


@pytest.fixture
def ops(front: Any) -> Any:
    return front.operations


def test_allreduce(front, ops, ranks):
    """All dtypes, operations and shapes at once, so that what can be fused is."""
    cases = [
        (dtype, op, shape)
        for dtype in front.dtypes
        for op in OPS
        for shape in ((), (7,), (3, 5), (0, 2))
        if not ("complex" in dtype and op in (hvd.Min, hvd.Max))
    ]
    inputs = [front.tensor(values(hvd.rank(), shape), dtype) for dtype, _, shape in cases]
    in_place = [front.tensor(values(hvd.rank(), shape), dtype) for dtype, _, shape in cases]
    handles = [
        (
            ops.allreduce_async(x, name=f"{case}", op=case[1], process_set=ranks),
            ops.allreduce_async_(y, name=f"{case} in place", op=case[1], process_set=ranks),
        )
        for case, x, y in zip(cases, inputs, in_place, strict=True)
    ]
    for (dtype, op, shape), (new, old), x, y in zip(cases, handles, inputs, in_place, strict=True):
        want = reduced(op, dtype, [values(r, shape) for r in ranks.ranks])
        same(front, synchronize(new), want, dtype)
        own = values(hvd.rank(), shape)
        same(front, x, own != 0 if dtype == "bool" else own)
        assert synchronize(old) is y
        same(front, y, want, dtype)


def test_allreduce_that_waits(front, ops, ranks):
    x = front.tensor([1.0, 1.0, 1.0])
    same(front, ops.allreduce(x, op=hvd.Sum, process_set=ranks), [ranks.size()] * 3)
    assert ops.allreduce_(x, op=hvd.Sum, name="x", process_set=ranks) is x
    same(front, x, [ranks.size()] * 3)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max], ids=lambda op: op.name)
def test_complex_numbers_have_no_order(front, ops, op):
    with pytest.raises(ValueError, match=r"weights: .* not defined"):
        ops.allreduce(front.tensor([1, 1], "complex64"), name="weights", op=op)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bfloat16", "float64", "complex64"])
def test_average_is_the_default(front, ops, ranks, dtype):
    if dtype not in front.dtypes:
        return
    x = front.tensor(values(hvd.rank(), (9,), low=-3), dtype)
    total = sum(values(r, (9,), low=-3) for r in ranks.ranks)
    want = np.trunc(total / ranks.size()) if "int" in dtype else total / ranks.size()
    for got in (ops.allreduce(x, process_set=ranks), ops.allreduce(x, op=hvd.Average, process_set=ranks)):
        np.testing.assert_allclose(front.array(got), want, rtol=0.01 if dtype == "bfloat16" else 1e-3)
    with pytest.warns(DeprecationWarning, match="average is deprecated"):
        same(front, ops.allreduce(x, average=False, process_set=ranks), total)


def test_no_average_of_bools(front, ops, ranks):
    with pytest.raises(ValueError, match="flags: Average of bool"):
        ops.allreduce(front.tensor([1, 1], "bool"), name="flags", process_set=ranks)


def test_grouped_allreduce(front, ops, ranks):
    shapes = [((5,), "float32"), ((2, 3), "float16"), ((), "int64"), ((4,), "bool")]
    mine = [front.tensor(values(hvd.rank(), shape), dtype) for shape, dtype in shapes]
    want = [reduced(hvd.Sum, dtype, [values(r, shape) for r in ranks.ranks]) for shape, dtype in shapes]
    new = ops.grouped_allreduce(mine, op=hvd.Sum, process_set=ranks)
    assert isinstance(new, list)
    later = synchronize(ops.grouped_allreduce_async(mine, op=hvd.Sum, name="group", process_set=ranks))
    old = ops.grouped_allreduce_(mine, op=hvd.Sum, process_set=ranks)
    for results in (new, later, old, mine):
        for result, expected, (_, dtype) in zip(results, want, shapes, strict=True):
            same(front, result, expected, dtype)
    assert all(a is b for a, b in zip(old, mine, strict=True))


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Max, hvd.Product], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
def test_scale_factors(front, ops, ranks, dtype, op):
    """Integers are truncated after each factor, as in Horovod. A mean is divided together with the last factor."""
    scaled = [(values(r, (11,)) * 2.5).astype(dtype) for r in ranks.ranks]
    total = reduce(OPS[hvd.Sum if op is hvd.Average else op], scaled).astype("float64")
    want = (total * 1.5 / (ranks.size() if op is hvd.Average else 1)).astype(dtype)
    how = {"op": op, "prescale_factor": 2.5, "postscale_factor": 1.5, "process_set": ranks}

    def x() -> Any:
        return front.tensor(values(hvd.rank(), (11,)), dtype)

    for got in (
        ops.allreduce(x(), **how),
        ops.allreduce_(x(), **how),
        ops.grouped_allreduce([x()], **how)[0],
    ):
        np.testing.assert_allclose(front.array(got), want, rtol=1e-3)


def test_tensors_with_gaps(front, ops, ranks):
    """The transpose and every second column, also in place: what lies between stays."""

    def own(rank: int) -> np.ndarray:
        return np.arange(24.0).reshape(4, 6) + rank

    base, total = front.tensor(own(hvd.rank())), sum(own(r) for r in ranks.ranks)
    same(front, ops.allreduce(base.T, op=hvd.Sum, process_set=ranks), total.T)
    same(front, ops.allreduce(base[:, ::2], op=hvd.Sum, process_set=ranks), total[:, ::2])
    same(front, ops.allreduce(base[1:3], op=hvd.Sum, process_set=ranks), total[1:3])
    ops.allreduce_(base[:, 1::2], op=hvd.Sum, process_set=ranks)
    same(front, base[:, 1::2], total[:, 1::2])
    same(front, base[:, ::2], own(hvd.rank())[:, ::2])
    last = front.tensor(own(hvd.rank()))
    ops.broadcast_(last.T, ranks.ranks[-1], process_set=ranks)
    same(front, last, own(ranks.ranks[-1]))


@pytest.mark.parametrize("how", ["none", "fp16", "bf16", "a user's"])
def test_compression(front, ops, ranks, how):
    class Halves(front.compression.none):
        @staticmethod
        def compress(tensor):
            return front.adapter.scale(tensor, 0.5), front.adapter.dtype(tensor)

        @staticmethod
        def decompress(tensor, ctx):
            return front.adapter.scale(front.adapter.cast(tensor, ctx), 2.0)

    if how == "bf16" and "bfloat16" not in front.dtypes:
        return
    compressor = Halves if how == "a user's" else getattr(front.compression, how)
    for dtype in ("float32", "float16", "float64", *(["int32"] * (how != "a user's"))):
        x = front.tensor(values(hvd.rank(), (33,)), dtype)
        want = sum(values(r, (33,)) for r in ranks.ranks)
        same(front, ops.allreduce(x, compression=compressor, op=hvd.Sum, process_set=ranks), want, dtype)
        pair = [x, front.tensor(values(hvd.rank(), (33,)), "float64")]
        mixed = ops.grouped_allreduce(pair, compression=compressor, op=hvd.Sum, process_set=ranks)
        same(front, mixed[0], want, dtype)
        share = ops.reducescatter(x, compression=compressor, op=hvd.Sum, process_set=ranks)
        assert front.adapter.dtype(share) == dtype


def test_compression_rounds_between_nodes(front, ops):
    x = front.tensor(np.full(5, 1 + 2.0**-12))
    exact = hvd.local_size() == hvd.size()
    narrow = ops.allreduce(x, compression=front.compression.fp16)
    same(front, narrow, front.array(x) if exact else np.ones(5))
    same(front, ops.allreduce(x), front.array(x))


def test_allgather(front, ops, ranks):
    def own(rank: int, dtype: str) -> np.ndarray:
        x = values(rank, (rank + 1, 3))
        return x != 0 if dtype == "bool" else x

    handles = {
        dtype: ops.allgather_async(front.tensor(own(hvd.rank(), dtype), dtype), name=dtype, process_set=ranks)
        for dtype in front.dtypes
    }
    for dtype, handle in handles.items():
        same(front, synchronize(handle), np.concatenate([own(r, dtype) for r in ranks.ranks]), dtype)


def test_allgather_of_little(front, ops, ranks):
    me, n = ranks.rank(), ranks.size()
    same(front, ops.allgather(front.tensor(me, "int64"), process_set=ranks), range(n))
    only_first = front.tensor(np.full(2 if me == 0 else 0, 5), "int64")
    same(front, ops.allgather(only_first, process_set=ranks), [5, 5])
    empty = ops.allgather(front.tensor(np.empty((0, 4))), process_set=ranks)
    assert front.adapter.shape(empty) == (0, 4)
    pair = [front.tensor([1.0]), front.tensor(np.full(me, me))]
    a, b = ops.grouped_allgather(pair, name="pair", process_set=ranks)
    same(front, a, [1] * n)
    same(front, b, [r for r in range(n) for _ in range(r)])


def test_broadcast(front, ops, ranks):
    cases = [(dtype, root) for dtype in front.dtypes for root in ranks.ranks]
    inputs = [front.tensor(values(hvd.rank(), (4, 2)), dtype) for dtype, _ in cases]
    handles = [
        ops.broadcast_async(x, root, name=f"{dtype} {root}", process_set=ranks)
        for (dtype, root), x in zip(cases, inputs, strict=True)
    ]
    for (dtype, root), x, handle in zip(cases, inputs, handles, strict=True):
        want, own = values(root, (4, 2)), values(hvd.rank(), (4, 2))
        same(front, synchronize(handle), want != 0 if dtype == "bool" else want, dtype)
        same(front, x, own != 0 if dtype == "bool" else own)
    last = ranks.ranks[-1]
    x = front.tensor(np.full(2, hvd.rank()))
    same(front, ops.broadcast(x, last, process_set=ranks), [last, last])
    assert ops.broadcast_(x, last, process_set=ranks) is x
    same(front, x, [last, last])


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32"])
def test_alltoall(front, ops, ranks, dtype):
    n, me = ranks.size(), ranks.rank()

    def own(rank: int) -> np.ndarray:
        x = values(rank, (2 * n, 3))
        return x != 0 if dtype == "bool" else x

    x = front.tensor(own(hvd.rank()), dtype)
    want = np.concatenate([own(r)[2 * me : 2 * me + 2] for r in ranks.ranks])
    same(front, ops.alltoall(x, process_set=ranks), want, dtype)
    output, splits = synchronize(ops.alltoall_async(x, process_set=ranks))
    same(front, output, want, dtype)
    same(front, splits, [2] * n, "int32")


def test_alltoall_with_splits(front, ops, ranks):
    """Rank s sends r + s rows to rank r."""
    n, me = ranks.size(), ranks.rank()
    splits = [r + me for r in range(n)]
    x = front.tensor(np.concatenate([np.full(rows, 10 * me + r) for r, rows in enumerate(splits)]), "int64")
    want = np.concatenate([np.full(me + s, 10 * s + me) for s in range(n)])
    for given, dtype in (
        (splits, "int32"), (front.tensor(splits, "int64"), "int64"), (front.tensor(splits, "int32"), "int32")
    ):  # fmt: skip
        output, received = ops.alltoall(x, splits=given, name="uneven", process_set=ranks)
        same(front, output, want)
        same(front, received, [me + s for s in range(n)], dtype)
    with pytest.raises(ValueError, match="alltoall of uneven: splits"):
        ops.alltoall(x, splits=[1] * (n + 1), name="uneven", process_set=ranks)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_reducescatter(front, ops, ranks, dtype, op):
    n, me = ranks.size(), ranks.rank()
    rows = 2 * n + 1
    first = 2 * me + min(me, 1)
    want = reduced(op, dtype, [values(r, (rows, 2)) for r in ranks.ranks])[first : first + 2 + (me == 0)]
    x = front.tensor(values(hvd.rank(), (rows, 2)), dtype)
    same(front, ops.reducescatter(x, op=op, process_set=ranks), want, dtype)
    for share in ops.grouped_reducescatter([x, x], op=op, process_set=ranks):
        same(front, share, want)
    if op is hvd.Sum and dtype == "float32":
        np.testing.assert_allclose(front.array(ops.reducescatter(x, process_set=ranks)), want / n, rtol=1e-6)
        half = ops.reducescatter(x, op=op, process_set=ranks, prescale_factor=0.25, postscale_factor=2.0)
        np.testing.assert_allclose(front.array(half), want / 2)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_reduce_to_every_root(front, ops, ranks, op):
    cases = [
        (dtype, shape, root)
        for dtype in front.dtypes
        for shape in ((), (3, 5), (0, 2))
        for root in ranks.ranks
        if not ("complex" in dtype and op in (hvd.Min, hvd.Max))
    ]
    inputs = [front.tensor(values(hvd.rank(), shape), dtype) for dtype, shape, _ in cases]
    handles = [
        ops.reduce_async(x, root_rank=case[2], name=f"{case}", op=op, process_set=ranks)
        for case, x in zip(cases, inputs, strict=True)
    ]
    for (dtype, shape, root), handle, x in zip(cases, handles, inputs, strict=True):
        result, own = synchronize(handle), values(hvd.rank(), shape)
        if hvd.rank() == root:
            same(front, result, reduced(op, dtype, [values(r, shape) for r in ranks.ranks]), dtype)
        else:
            assert result is None
        same(front, x, own != 0 if dtype == "bool" else own)


def test_reduce_that_waits(front, ops, ranks):
    """An average by default, strided tensors, and factors, also where the library does not apply them."""
    root = ranks.ranks[-1]
    total = sum(values(r, (4, 6)) for r in ranks.ranks)
    wants = {"float32": total / ranks.size(), "int32": np.trunc(total / ranks.size())}
    for dtype, want in wants.items():
        x = front.tensor(values(hvd.rank(), (4, 6)), dtype)
        mean = ops.reduce(x.T, root_rank=root, name="mean", process_set=ranks)
        scaled = ops.reduce(x, op=hvd.Sum, root_rank=root, process_set=ranks, prescale_factor=3.0, postscale_factor=2.0)
        if hvd.rank() != root:
            assert mean is None
            assert scaled is None
            continue
        np.testing.assert_allclose(front.array(mean), want.T, rtol=1e-6)
        same(front, scaled, 6 * total, dtype)


def test_gather_to_every_root(front, ops, ranks):
    def own(rank: int, dtype: str) -> np.ndarray:
        x = values(rank, (rank + 1, 3))
        return x != 0 if dtype == "bool" else x

    cases = [(dtype, root) for dtype in front.dtypes for root in ranks.ranks]
    handles = [
        ops.gather_async(front.tensor(own(hvd.rank(), d), d), root, name=f"{d} {root}", process_set=ranks)
        for d, root in cases
    ]
    for (dtype, root), handle in zip(cases, handles, strict=True):
        result = synchronize(handle)
        if hvd.rank() == root:
            same(front, result, np.concatenate([own(r, dtype) for r in ranks.ranks]), dtype)
        else:
            assert result is None


def test_gather_of_little(front, ops, ranks):
    root, me = ranks.ranks[-1], ranks.rank()
    numbers = ops.gather(front.tensor(me, "int64"), root, process_set=ranks)
    rows = ops.gather(front.tensor(np.full((2 if me == 0 else 0, 4), 5)).T[:4].T, root, process_set=ranks)
    empty = ops.gather(front.tensor(np.empty((0, 4))), root, process_set=ranks)
    no_columns = ops.gather(front.tensor(np.empty((me, 0))), root, process_set=ranks)
    if hvd.rank() != root:
        assert [numbers, rows, empty, no_columns] == [None] * 4
        return
    same(front, numbers, range(ranks.size()))
    same(front, rows, np.full((2, 4), 5))
    assert front.adapter.shape(empty) == (0, 4)
    assert front.adapter.shape(no_columns) == (sum(range(ranks.size())), 0)


def test_scatter_from_every_root(front, ops, ranks):
    """As even as can be; the other ranks' tensors have some number of rows, which does not matter."""
    rows = 2 * ranks.size() + 1

    def whole(root: int, dtype: str) -> np.ndarray:
        x = values(root, (rows, 3))
        return x != 0 if dtype == "bool" else x

    cases = [(dtype, root) for dtype in front.dtypes for root in ranks.ranks]
    inputs = [front.tensor(whole(root, d) if hvd.rank() == root else np.zeros((hvd.rank(), 3)), d) for d, root in cases]
    handles = [
        ops.scatter_async(x, root, name=f"{d} {root}", process_set=ranks)
        for (d, root), x in zip(cases, inputs, strict=True)
    ]
    for (dtype, root), handle in zip(cases, handles, strict=True):
        want = np.array_split(whole(root, dtype), ranks.size())[ranks.rank()]
        same(front, synchronize(handle), want, dtype)


def test_scatter_with_splits(front, ops, ranks):
    """Rank r of the set gets r rows: from strided rows, with splits as a list and as a tensor, and without columns."""
    root, me, splits = ranks.ranks[-1], ranks.rank(), list(range(ranks.size()))
    whole = values(root, (sum(splits), 4))
    x = front.tensor(whole if hvd.rank() == root else np.zeros((1, 4)), "int64")
    for given in (splits, front.tensor(splits, "int64")):
        at_root = given if hvd.rank() == root else None
        mine = ops.scatter(x[:, ::2], root, at_root, name="uneven", process_set=ranks)
        same(front, mine, np.split(whole[:, ::2], np.cumsum(splits)[:-1])[me], "int64")
    no_columns = ops.scatter(x[:, :0], root, at_root, process_set=ranks)
    assert front.adapter.shape(no_columns) == (me, 0)
    if hvd.rank() == root:
        with pytest.raises(ValueError, match="scatter of uneven: splits"):
            ops.scatter(x, root, splits=[1] * (ranks.size() + 1), name="uneven", process_set=ranks)


def test_sparse_allreduce(front, ops, ranks):
    mine = front.sparse([[0, 1], [hvd.rank() + 1, 0], [2, 0]], [1.0, 2.0, 3.0], (6, 2))
    want = np.zeros((6, 2))
    for r in ranks.ranks:
        want[0, 1] += 1
        want[r + 1, 0] += 2
        want[2, 0] += 3
    total = ops.sparse_allreduce_async(mine, name="table", op=hvd.Sum, process_set=ranks)()
    assert front.adapter.is_sparse(total)
    same(front, total, want)
    mean = ops.sparse_allreduce_async(mine, name="table", op=hvd.Average, process_set=ranks)()
    np.testing.assert_allclose(front.array(mean), want / ranks.size(), rtol=1e-6)
    with pytest.raises(ValueError, match="'table': op is MAX"):
        ops.sparse_allreduce_async(mine, name="table", op=hvd.Max, process_set=ranks)
    with pytest.raises(ValueError, match=r"sparse_allreduce_async\(\)"):
        ops.allreduce(mine, process_set=ranks)


def test_many_in_flight_in_any_order(front, ops, ranks):
    order = np.random.default_rng(hvd.rank()).permutation(40).tolist()
    tensors = {i: front.tensor(np.full(i, i)) for i in order}
    handles = {i: ops.allreduce_async_(tensors[i], name=f"t{i}", op=hvd.Sum, process_set=ranks) for i in order}
    for i in reversed(order):
        assert synchronize(handles[i]) is tensors[i]
        assert poll(handles[i])
        same(front, tensors[i], np.full(i, i * ranks.size()))


def test_the_same_name_in_two_operations(front, ops):
    a = ops.allreduce_async(front.tensor([1.0]), name="weights", op=hvd.Sum)
    b = ops.broadcast_async(front.tensor([1.0]), 0, name="weights")
    c = ops.allgather_async(front.tensor([1.0]), name="weights")
    same(front, synchronize(c), [1] * hvd.size())
    same(front, synchronize(b), [1])
    same(front, synchronize(a), [hvd.size()])


def test_an_empty_name_is_none(front, ops):
    handles = [ops.allreduce_async(front.tensor([i]), name="", op=hvd.Sum) for i in range(3)]
    assert [front.array(synchronize(h)).tolist() for h in handles] == [[i * hvd.size()] for i in range(3)]


def test_handles(front, ops):
    handle = ops.allreduce_async(front.tensor([1.0, 2.0]), op=hvd.Sum)
    assert isinstance(handle, int)
    assert synchronize(handle) is synchronize(handle)
    ops.allreduce_async(front.tensor(np.ones(1000)), name="nobody waits")
    with pytest.raises(ValueError, match="no handle"):
        synchronize(3)
    hvd.barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("what", ["shape", "dtype", "op", "root", "columns", "root of a gather"])
def test_ranks_that_differ(front, ops, what):
    first, how = hvd.rank() == 0, {"name": "weights"}
    calls = {
        "shape": lambda: ops.allreduce(front.tensor(np.ones(4 if first else 3)), **how),
        "dtype": lambda: ops.allreduce(front.tensor([1], "int64" if first else "int32"), **how),
        "op": lambda: ops.allreduce(front.tensor([1.0]), op=hvd.Max if first else hvd.Sum, **how),
        "root": lambda: ops.broadcast(front.tensor([1.0]), 0 if first else 1, **how),
        "columns": lambda: ops.scatter(front.tensor(np.ones((4, 4 if first else 3))), 0, **how),
        "root of a gather": lambda: ops.gather(front.tensor([1.0]), 0 if first else 1, **how),
    }
    text = r"rank 0 has float32\[4\].*rank 1 has float32\[3\]" if what == "shape" else ""
    with pytest.raises(RuntimeError, match=f"weights.*{text}") as caught:
        calls[what]()
    assert not isinstance(caught.value, (hvd.HorovodInternalError, ValueError))
    same(front, ops.allreduce(front.tensor([1.0]), op=hvd.Sum), [hvd.size()])


def test_objects(ranks):
    last = ranks.ranks[-1]
    assert hvd.broadcast_object({"epoch": hvd.rank()}, last, process_set=ranks) == {"epoch": last}
    assert hvd.broadcast_object_fn(last, process_set=ranks)(hvd.rank()) == last
    words = hvd.allgather_object("x" * hvd.rank(), name="words", process_set=ranks)
    assert words == ["x" * rank for rank in ranks.ranks]
