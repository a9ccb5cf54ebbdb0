# SPDX-License-Identifier: Apache-2.0
"""Every operation, on every dtype, in process sets; each rank knows what the others have and works out the result."""

from functools import reduce

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]

INTEGERS = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
EVERY_DTYPE = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]
OPS = {
    hvd.Sum: torch.add,
    hvd.Min: torch.minimum,
    hvd.Max: torch.maximum,
    hvd.Product: torch.mul,
}


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype, low: int = 0) -> torch.Tensor:
    """Small whole numbers, exact in any dtype, also added up or multiplied by four ranks."""
    generator = torch.Generator().manual_seed(rank)
    values = torch.randint(low, 4, shape, generator=generator)
    return values.to(dtype)


def reduced(op: int, inputs: list[torch.Tensor]) -> torch.Tensor:
    """In wide types, as every dtype is added up, multiplied and compared there."""
    dtype = inputs[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    result = reduce(OPS[op], [one.to(wide) for one in inputs])
    return (result != 0 if dtype is torch.bool else result).to(dtype)


def test_allreduce(ranks):
    """All dtypes, operations and shapes at once, so that what can be fused is."""
    cases = [
        (dtype, op, shape)
        for dtype in EVERY_DTYPE
        for op in OPS
        for shape in ((), (7,), (3, 5), (0, 2))
        if not (dtype.is_complex and op in (hvd.Min, hvd.Max))
    ]
    inputs = [of_rank(hvd.rank(), shape, dtype) for dtype, _, shape in cases]
    in_place = [x.clone() for x in inputs]
    handles = [
        (
            hvd.allreduce_async(x, name=f"{case}", op=case[1], process_set=ranks),
            hvd.allreduce_async_(y, name=f"{case} in place", op=case[1], process_set=ranks),
        )
        for case, x, y in zip(cases, inputs, in_place, strict=True)
    ]
    for (dtype, op, shape), (new, same), x, y in zip(cases, handles, inputs, in_place, strict=True):
        want = reduced(op, [of_rank(r, shape, dtype) for r in ranks.ranks])
        got = hvd.synchronize(new)
        assert torch.equal(got, want), (dtype, op, shape)
        assert got.dtype == dtype
        assert torch.equal(x, of_rank(hvd.rank(), shape, dtype))
        assert hvd.synchronize(same) is y
        assert torch.equal(y, want)


def test_allreduce_that_waits(ranks):
    x = torch.ones(3)
    assert hvd.allreduce(x, op=hvd.Sum, process_set=ranks).tolist() == [ranks.size()] * 3
    assert hvd.allreduce_(x, op=hvd.Sum, name="x", process_set=ranks) is x
    assert x.tolist() == [ranks.size()] * 3


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max], ids=lambda op: op.name)
def test_complex_numbers_have_no_order(op):
    with pytest.raises(ValueError, match=r"weights: .* not defined"):
        hvd.allreduce(torch.ones(3, dtype=torch.complex64), name="weights", op=op)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, *FLOATS, *COMPLEX], ids=str)
def test_average_is_the_default(ranks, dtype):
    x = of_rank(hvd.rank(), (9,), dtype, low=-3)
    total = reduced(hvd.Sum, [of_rank(r, (9,), dtype, low=-3) for r in ranks.ranks])
    want = total / ranks.size() if dtype.is_floating_point or dtype.is_complex else torch.div(
        total, ranks.size(), rounding_mode="trunc"
    )  # fmt: skip
    for got in (hvd.allreduce(x, process_set=ranks), hvd.allreduce(x, op=hvd.Average, process_set=ranks)):
        torch.testing.assert_close(got, want)
    with pytest.warns(DeprecationWarning, match="average is deprecated"):
        assert torch.equal(hvd.allreduce(x, average=False, process_set=ranks), total)


def test_no_average_of_bools(ranks):
    with pytest.raises(ValueError, match="flags: AVERAGE of bool"):
        hvd.allreduce(torch.ones(2, dtype=torch.bool), name="flags", process_set=ranks)


def test_grouped_allreduce(ranks):
    shapes = [((5,), torch.float32), ((2, 3), torch.float16), ((), torch.int64), ((4,), torch.bool)]
    mine = [of_rank(hvd.rank(), *one) for one in shapes]
    want = [reduced(hvd.Sum, [of_rank(r, *one) for r in ranks.ranks]) for one in shapes]
    got = hvd.grouped_allreduce(mine, op=hvd.Sum, process_set=ranks)
    assert isinstance(got, list)
    later = hvd.synchronize(hvd.grouped_allreduce_async(mine, op=hvd.Sum, name="group", process_set=ranks))
    inplace = hvd.grouped_allreduce_(mine, op=hvd.Sum, process_set=ranks)
    for results in (got, later, inplace, mine):
        assert all(torch.equal(*pair) for pair in zip(results, want, strict=True))
    assert all(a is b for a, b in zip(inplace, mine, strict=True))


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Max, hvd.Product], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float16], ids=str)
def test_scale_factors(ranks, dtype, op):
    """Integers are cut off after each factor, as in Horovod: a mean is divided along with the last."""
    inputs = [of_rank(r, (11,), dtype) for r in ranks.ranks]
    scaled = [(one.double() * 2.5).to(dtype) for one in inputs]
    total = reduced(hvd.Sum if op is hvd.Average else op, scaled).double()
    want = (total * 1.5 / (ranks.size() if op is hvd.Average else 1)).to(dtype)
    how = {"op": op, "prescale_factor": 2.5, "postscale_factor": 1.5, "process_set": ranks}
    x = of_rank(hvd.rank(), (11,), dtype)
    torch.testing.assert_close(hvd.allreduce(x, **how), want)
    torch.testing.assert_close(hvd.allreduce_(x.clone(), **how), want)
    torch.testing.assert_close(hvd.grouped_allreduce([x], **how)[0], want)


def test_strided_tensors(ranks):
    base = torch.arange(24.0).reshape(4, 6) + hvd.rank()
    total = sum(torch.arange(24.0).reshape(4, 6) + r for r in ranks.ranks)
    for view, want in ((base.t(), total.t()), (base[:, ::2], total[:, ::2]), (base[1:3], total[1:3])):
        assert torch.equal(hvd.allreduce(view, op=hvd.Sum, process_set=ranks), want)
    columns = base[:, 1::2]
    hvd.allreduce_(columns, op=hvd.Sum, process_set=ranks)
    assert torch.equal(base[:, 1::2], total[:, 1::2])
    assert torch.equal(base[:, ::2], torch.arange(24.0).reshape(4, 6)[:, ::2] + hvd.rank())
    row = torch.ones(3).expand(2, 3)
    assert torch.equal(hvd.allgather(row, process_set=ranks), torch.ones(2 * ranks.size(), 3))
    hvd.broadcast_(base.t(), ranks.ranks[-1], process_set=ranks)
    conjugate = torch.tensor([1 + 2j]).conj()
    assert torch.equal(hvd.allreduce(conjugate, process_set=ranks), torch.tensor([1 - 2j]))


class Halves(hvd.Compression.none):
    """A compressor of a user."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx) * 2


@pytest.mark.parametrize("how", [hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16, Halves])
def test_compression(ranks, how):
    for dtype in (torch.float32, torch.float16, torch.float64, torch.int32):
        if how is Halves and dtype is torch.int32:
            continue
        x = of_rank(hvd.rank(), (33,), dtype)
        want = reduced(hvd.Sum, [of_rank(r, (33,), dtype) for r in ranks.ranks])
        got = hvd.allreduce(x, compression=how, op=hvd.Sum, process_set=ranks)
        assert got.dtype == dtype
        assert torch.equal(got, want)
        mixed = hvd.grouped_allreduce([x, x.double()], compression=how, op=hvd.Sum, process_set=ranks)
        assert torch.equal(mixed[0], want)
        share = hvd.reducescatter(x, compression=how, op=hvd.Sum, process_set=ranks)
        assert share.dtype == dtype


def test_compression_rounds_between_nodes():
    x = torch.full((5,), 1 + 2.0**-12)
    exact = hvd.local_size() == hvd.size()
    assert torch.equal(hvd.allreduce(x, compression=hvd.Compression.fp16), x if exact else torch.ones(5))
    assert torch.equal(hvd.allreduce(x), x)


def test_allgather(ranks):
    def of(rank: int, dtype: torch.dtype) -> torch.Tensor:
        return of_rank(rank, (rank + 1, 3), dtype)

    handles = {
        dtype: hvd.allgather_async(of(hvd.rank(), dtype), name=str(dtype), process_set=ranks)
        for dtype in EVERY_DTYPE
    }
    for dtype, handle in handles.items():
        got = hvd.synchronize(handle)
        assert got.dtype == dtype
        assert torch.equal(got, torch.cat([of(r, dtype) for r in ranks.ranks]))


def test_allgather_of_little(ranks):
    me, n = ranks.rank(), ranks.size()
    assert hvd.allgather(torch.tensor(me), process_set=ranks).tolist() == list(range(n))
    only_first = hvd.allgather(torch.full((2 if me == 0 else 0,), 5), process_set=ranks)
    assert only_first.tolist() == [5, 5]
    assert hvd.allgather(torch.empty(0, 4), process_set=ranks).shape == (0, 4)
    a, b = hvd.grouped_allgather([torch.ones(1), torch.full((me,), me)], name="pair", process_set=ranks)
    assert a.tolist() == [1] * n
    assert b.tolist() == [r for r in range(n) for _ in range(r)]


def test_broadcast(ranks):
    cases = [(dtype, root) for dtype in EVERY_DTYPE for root in ranks.ranks]
    inputs = [of_rank(hvd.rank(), (4, 2), dtype) for dtype, _ in cases]
    handles = [
        hvd.broadcast_async(x, root, name=f"{dtype} {root}", process_set=ranks)
        for (dtype, root), x in zip(cases, inputs, strict=True)
    ]
    for (dtype, root), x, handle in zip(cases, inputs, handles, strict=True):
        got = hvd.synchronize(handle)
        assert torch.equal(got, of_rank(root, (4, 2), dtype))
        assert torch.equal(x, of_rank(hvd.rank(), (4, 2), dtype))
    last = ranks.ranks[-1]
    x = torch.full((2,), float(hvd.rank()))
    assert hvd.broadcast(x, last, process_set=ranks).tolist() == [last, last]
    assert hvd.broadcast_(x, last, process_set=ranks) is x
    assert x.tolist() == [last, last]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float32], ids=str)
def test_alltoall(ranks, dtype):
    n, me = ranks.size(), ranks.rank()
    x = of_rank(hvd.rank(), (2 * n, 3), dtype)
    want = torch.cat([of_rank(r, (2 * n, 3), dtype)[2 * me : 2 * me + 2] for r in ranks.ranks])
    assert torch.equal(hvd.alltoall(x, process_set=ranks), want)
    output, splits = hvd.synchronize(hvd.alltoall_async(x, process_set=ranks))
    assert torch.equal(output, want)
    assert splits.tolist() == [2] * n
    assert splits.dtype == torch.int32


def test_alltoall_with_splits(ranks):
    """Rank s sends r + s rows to rank r."""
    n, me = ranks.size(), ranks.rank()
    splits = [r + me for r in range(n)]
    x = torch.cat([torch.full((rows,), 10 * me + r) for r, rows in enumerate(splits)])
    want = torch.cat([torch.full((me + s,), 10 * s + me) for s in range(n)])
    for given in (splits, torch.tensor(splits), torch.tensor(splits, dtype=torch.int32)):
        output, received = hvd.alltoall(x, splits=given, name="uneven", process_set=ranks)
        assert torch.equal(output, want)
        assert received.tolist() == [me + s for s in range(n)]
        assert received.dtype == (given.dtype if isinstance(given, torch.Tensor) else torch.int32)
    with pytest.raises(ValueError, match="alltoall of uneven: splits"):
        hvd.alltoall(x, splits=[1] * (n + 1), name="uneven", process_set=ranks)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32], ids=str)
def test_reducescatter(ranks, dtype, op):
    n, me = ranks.size(), ranks.rank()
    rows = 2 * n + 1
    want = reduced(op, [of_rank(r, (rows, 2), dtype) for r in ranks.ranks])
    first = 2 * me + min(me, 1)
    want = want[first : first + 2 + (me == 0)]
    x = of_rank(hvd.rank(), (rows, 2), dtype)
    assert torch.equal(hvd.reducescatter(x, op=op, process_set=ranks), want)
    both = hvd.grouped_reducescatter([x, x], op=op, process_set=ranks)
    assert all(torch.equal(one, want) for one in both)
    if op is hvd.Sum and dtype is torch.float32:
        torch.testing.assert_close(hvd.reducescatter(x, process_set=ranks), want / n)
        half = hvd.reducescatter(x, op=op, process_set=ranks, prescale_factor=0.25, postscale_factor=2.0)
        torch.testing.assert_close(half, want / 2)


def test_sparse_allreduce(ranks):
    indices = torch.tensor([[0, hvd.rank() + 1, 2], [1, 0, 0]])
    mine = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (6, 2), check_invariants=True)
    want = torch.zeros(6, 2)
    for r in ranks.ranks:
        want[0, 1] += 1
        want[r + 1, 0] += 2
        want[2, 0] += 3
    total = hvd.sparse_allreduce_async(mine, name="table", op=hvd.Sum, process_set=ranks)()
    assert total.is_sparse
    torch.testing.assert_close(total.to_dense(), want)
    mean = hvd.sparse_allreduce_async(mine, name="table", op=hvd.Average, process_set=ranks)()
    torch.testing.assert_close(mean.to_dense(), want / ranks.size())
    with pytest.raises(ValueError, match="'table': op is Max"):
        hvd.sparse_allreduce_async(mine, name="table", op=hvd.Max, process_set=ranks)


def test_many_in_flight_in_any_order(ranks):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(hvd.rank())).tolist()
    tensors = {i: torch.full((i,), float(i)) for i in order}
    handles = {
        i: hvd.allreduce_async_(tensors[i], name=f"t{i}", op=hvd.Sum, process_set=ranks) for i in order
    }
    for i in reversed(order):
        assert hvd.synchronize(handles[i]) is tensors[i]
        assert hvd.poll(handles[i])
        assert (tensors[i] == i * ranks.size()).all()


def test_the_same_name_in_two_operations():
    a = hvd.allreduce_async(torch.ones(2), name="weights", op=hvd.Sum)
    b = hvd.broadcast_async(torch.ones(2), 0, name="weights")
    c = hvd.allgather_async(torch.ones(1), name="weights")
    assert hvd.synchronize(c).tolist() == [1] * hvd.size()
    assert hvd.synchronize(b).tolist() == [1, 1]
    assert hvd.synchronize(a).tolist() == [hvd.size()] * 2


def test_an_empty_name_is_none():
    handles = [hvd.allreduce_async(torch.full((2,), i), name="", op=hvd.Sum) for i in range(3)]
    assert [hvd.synchronize(one)[0].item() for one in handles] == [i * hvd.size() for i in range(3)]


def test_handles():
    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
    assert isinstance(handle, int)
    first = hvd.synchronize(handle)
    assert hvd.synchronize(handle) is first
    hvd.allreduce_async(torch.ones(1000), name="nobody waits")
    with pytest.raises(ValueError, match="no handle"):
        hvd.synchronize(3)
    hvd.barrier()
