# SPDX-License-Identifier: Apache-2.0
"""Each function for tensors with each of its arguments, as Horovod's documentation has them; NumPy says what is right.

Every rank computes what all ranks bring, as the values follow from the rank.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.timeout(60)]

DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64,
)  # fmt: skip
FLOATING = tuple(dtype for dtype in DTYPES if dtype.is_floating_point)
OPS: dict[Any, Callable[[np.ndarray], np.ndarray]] = {
    hvd.Sum: lambda x: x.sum(0),
    hvd.Average: lambda x: x.mean(0),
    hvd.Min: lambda x: x.min(0),
    hvd.Max: lambda x: x.max(0),
    hvd.Product: lambda x: x.prod(0),
}


@pytest.fixture(scope="module", autouse=True)
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(scope="module", params=["all ranks", "every second rank"])
def ranks(request: pytest.FixtureRequest, job: None) -> Iterator[hvd.ProcessSet]:
    """The set of this rank: every rank is in one."""
    if request.param == "all ranks" or hvd.size() == 1:
        yield hvd.global_process_set
        return
    sets = [hvd.add_process_set(range(first, hvd.size(), 2)) for first in (0, 1)]
    yield sets[hvd.rank() % 2]
    for one in sets:
        hvd.remove_process_set(one)


def values(rank: int, *shape: int, seed: int = 0) -> np.ndarray:
    """What a rank brings: small whole numbers, so that only products of 16-bit floats would be rounded."""
    return np.random.default_rng([rank, seed]).integers(1, 4, shape).astype(np.float64)


def mine(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(values(hvd.rank(), *shape, seed=seed)).to(dtype)


def everyones(ranks: hvd.ProcessSet, *shape: int, seed: int = 0) -> np.ndarray:
    return np.stack([values(rank, *shape, seed=seed) for rank in ranks.ranks or ()])


def check(got: torch.Tensor, want: np.ndarray, dtype: torch.dtype = torch.float32) -> None:
    """Whole numbers are cut off towards zero; floating-point results may be rounded once or twice."""
    assert got.dtype == dtype
    wanted = torch.from_numpy(np.ascontiguousarray(want)).to(dtype)
    epsilon = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    torch.testing.assert_close(got, wanted, rtol=2 * epsilon, atol=0)


# ---- allreduce ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS, ids=str)
def test_allreduce_of_every_dtype_in_every_form(op: Any, ranks: hvd.ProcessSet) -> None:
    options = {"op": op, "process_set": ranks}
    want, other = (OPS[op](everyones(ranks, 2, 3, seed=seed)) for seed in (0, 1))
    for dtype in DTYPES:
        x, y = mine(2, 3, dtype=dtype), mine(2, 3, seed=1, dtype=dtype)
        check(hvd.allreduce(x, **options), want, dtype)
        check(hvd.synchronize(hvd.allreduce_async(x, name=f"a {dtype}", **options)), want, dtype)
        for result, wanted in zip(hvd.grouped_allreduce([x, y], **options), (want, other), strict=True):
            check(result, wanted, dtype)
        for result, wanted in zip(
            hvd.synchronize(hvd.grouped_allreduce_async([x, y], name="g", **options)), (want, other), strict=True
        ):
            check(result, wanted, dtype)
        assert torch.equal(x, mine(2, 3, dtype=dtype))
        for in_place in (
            lambda t: hvd.allreduce_(t, **options),
            lambda t: hvd.synchronize(hvd.allreduce_async_(t, **options)),
            lambda t: hvd.grouped_allreduce_([t], **options)[0],
            lambda t: hvd.synchronize(hvd.grouped_allreduce_async_([t], **options))[0],
        ):
            z = x.clone()
            assert in_place(z) is z
            check(z, want, dtype)


@pytest.mark.parametrize("op", OPS, ids=str)
@pytest.mark.parametrize(("before", "after"), [(0.5, 1.0), (1.0, 4.0), (0.5, 3.0)])
def test_factors(op: Any, before: float, after: float, ranks: hvd.ProcessSet) -> None:
    options = {"op": op, "prescale_factor": before, "postscale_factor": after, "process_set": ranks}
    want = after * OPS[op](before * everyones(ranks, 4))
    for dtype in (torch.float32, torch.float64):
        x = mine(4, dtype=dtype)
        check(hvd.allreduce(x, **options), want, dtype)
        check(hvd.synchronize(hvd.allreduce_async(x, **options)), want, dtype)
        check(hvd.allreduce_(x.clone(), **options), want, dtype)
        check(hvd.grouped_allreduce([x], **options)[0], want, dtype)
    if op in (hvd.Sum, hvd.Average):
        rows = np.array_split(after * OPS[op](before * everyones(ranks, 5, 2)), len(ranks.ranks or ()))
        check(hvd.reducescatter(mine(5, 2), **options), rows[ranks.rank() or 0])


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression(compression: Any, ranks: hvd.ProcessSet) -> None:
    """Small whole numbers and their sums are whole in 16 bits, too."""
    options = {"compression": compression, "op": hvd.Sum, "process_set": ranks}
    everybody = everyones(ranks, 6)
    rows = np.array_split(everybody.sum(0), len(everybody))[ranks.rank() or 0]
    for dtype in (torch.float32, torch.float64, torch.int32):
        x = mine(6, dtype=dtype)
        check(hvd.allreduce(x, **options), everybody.sum(0), dtype)
        check(hvd.grouped_allreduce([x, x], **options)[1], everybody.sum(0), dtype)
        check(hvd.reducescatter(x, **options), rows, dtype)
        check(hvd.grouped_reducescatter([x], **options)[0], rows, dtype)


def test_the_deprecated_argument_average() -> None:
    everybody = everyones(hvd.global_process_set, 3)
    for average, want in ((True, everybody.mean(0)), (False, everybody.sum(0))):
        with pytest.warns(DeprecationWarning, match="average"):
            check(hvd.allreduce(mine(3), average), want)
        with pytest.warns(DeprecationWarning, match="average"):
            check(hvd.synchronize(hvd.allreduce_async(mine(3), average=average)), want)
    with pytest.raises(ValueError, match="average"):
        hvd.allreduce(mine(3), average=True, op=hvd.Sum)


def adasum(vectors: list[np.ndarray]) -> np.ndarray:
    """S. Maleki et al., MLSys 2021: pairs of neighbours are combined, then pairs of pairs."""
    while len(vectors) > 1:
        vectors = [
            (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
            for a, b in zip(vectors[0::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def test_adasum(ranks: hvd.ProcessSet) -> None:
    everybody = everyones(ranks, 8)
    if math.log2(len(everybody)) % 1:
        with pytest.raises(NotImplementedError, match="power of two"):
            hvd.allreduce(mine(8), op=hvd.Adasum, process_set=ranks)
        return
    want = torch.from_numpy(adasum(list(everybody)))
    for dtype in FLOATING:
        got = hvd.allreduce(mine(8, dtype=dtype), op=hvd.Adasum, process_set=ranks)
        torch.testing.assert_close(got, want.to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_sparse_allreduce(ranks: hvd.ProcessSet) -> None:
    for op in (hvd.Sum, hvd.Average):
        wait = hvd.sparse_allreduce_async(mine(4, 2).to_sparse(), f"sparse {op}", op, process_set=ranks)
        check(wait().to_dense(), OPS[op](everyones(ranks, 4, 2)))


# ---- movements ------------------------------------------------------------------------------------------


def test_allgather_of_unequal_rows(ranks: hvd.ProcessSet) -> None:
    want, other = (
        np.concatenate([values(rank, rank + 1, 2, seed=seed) for rank in ranks.ranks or ()]) for seed in (0, 1)
    )
    for dtype in (*DTYPES, torch.bool, torch.complex64):
        x, y = (mine(hvd.rank() + 1, 2, seed=seed, dtype=dtype) for seed in (0, 1))
        for got in (
            hvd.allgather(x, process_set=ranks),
            hvd.synchronize(hvd.allgather_async(x, name="x", process_set=ranks)),
            hvd.grouped_allgather([x, y], process_set=ranks)[0],
            hvd.synchronize(hvd.grouped_allgather_async([x, y], name="x", process_set=ranks))[0],
        ):
            check(got, want, dtype)
        check(hvd.grouped_allgather([x, y], name="y", process_set=ranks)[1], other, dtype)


def test_broadcast_from_every_root(ranks: hvd.ProcessSet) -> None:
    for root in ranks.ranks or ():
        for dtype in (*DTYPES, torch.bool):
            x, want = mine(3, dtype=dtype), values(root, 3)
            check(hvd.broadcast(x, root, process_set=ranks), want, dtype)
            check(hvd.synchronize(hvd.broadcast_async(x, root, name="b", process_set=ranks)), want, dtype)
            assert torch.equal(x, mine(3, dtype=dtype))
            for in_place in (hvd.broadcast_, lambda *a, **k: hvd.synchronize(hvd.broadcast_async_(*a, **k))):
                y = x.clone()
                assert in_place(y, root, process_set=ranks) is y
                check(y, want, dtype)


def test_alltoall(ranks: hvd.ProcessSet) -> None:
    members, me = ranks.ranks or [], ranks.rank() or 0
    n = len(members)
    for dtype in DTYPES:
        even = np.concatenate([values(rank, 2 * n, 3)[2 * me : 2 * me + 2] for rank in members])
        check(hvd.alltoall(mine(2 * n, 3, dtype=dtype), process_set=ranks), even, dtype)
        splits = [(hvd.rank() + to) % 3 for to in range(n)]
        x = mine(sum(splits), 3, dtype=dtype)
        parts, counts = [], []
        for rank in members:
            own = [(rank + to) % 3 for to in range(n)]
            parts.append(values(rank, sum(own), 3)[sum(own[:me]) : sum(own[: me + 1])])
            counts.append(own[me])
        for got in (
            hvd.alltoall(x, splits=torch.tensor(splits, dtype=torch.int32), process_set=ranks),
            hvd.alltoall(x, splits, name="list", process_set=ranks),
            hvd.synchronize(hvd.alltoall_async(x, torch.tensor(splits, dtype=torch.int32), process_set=ranks)),
        ):
            check(got[0], np.concatenate(parts), dtype)
            assert got[1].tolist() == counts


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=str)
def test_reducescatter_of_unequal_rows(op: Any, ranks: hvd.ProcessSet) -> None:
    """The first n mod size ranks get one row more than the others, where there are n rows."""
    for rows in (1, 4, 7):
        for dtype in DTYPES:
            want = np.array_split(OPS[op](everyones(ranks, rows, 2)), len(ranks.ranks or ()))[ranks.rank() or 0]
            x = mine(rows, 2, dtype=dtype)
            for got in (
                hvd.reducescatter(x, op=op, process_set=ranks),
                hvd.synchronize(hvd.reducescatter_async(x, name="r", op=op, process_set=ranks)),
                hvd.grouped_reducescatter([x, x], op=op, process_set=ranks)[1],
                hvd.synchronize(hvd.grouped_reducescatter_async([x], name="r", op=op, process_set=ranks))[0],
            ):
                check(got, want, dtype)


def test_tensors_without_elements_or_dimensions(ranks: hvd.ProcessSet) -> None:
    n = len(ranks.ranks or ())
    assert hvd.allreduce(torch.empty(0, 3), process_set=ranks).shape == (0, 3)
    assert hvd.allgather(torch.empty(0, 3), process_set=ranks).shape == (0, 3)
    assert hvd.allreduce(torch.tensor(2.0), op=hvd.Sum, process_set=ranks).item() == 2 * n
    assert hvd.allgather(torch.tensor(2.0), process_set=ranks).tolist() == [2.0] * n


# ---- handles, order, the end ------------------------------------------------------------------------------


def test_handles_in_any_order() -> None:
    """Named requests match whatever their order is on each rank; poll() tells when synchronize() would not wait."""
    everybody = everyones(hvd.global_process_set, 3)
    order = range(8) if hvd.rank() % 2 else reversed(range(8))
    handles = {i: hvd.allreduce_async(mine(3) * (i + 1), name=f"order {i}", op=hvd.Sum) for i in order}
    for i in range(8):
        check(hvd.synchronize(handles[i]), everybody.sum(0) * (i + 1))
        assert hvd.poll(handles[i])


def test_join_with_uneven_numbers_of_batches() -> None:
    """Rank r has r + 1 batches. A joined rank adds nothing to a sum, and Average divides by all ranks."""
    size = hvd.size()
    for i in range(hvd.rank() + 1):
        there = [values(rank, 3, seed=i) for rank in range(i, size)]
        check(hvd.allreduce(mine(3, seed=i), name=f"sum {i}", op=hvd.Sum), np.sum(there, 0))
        check(hvd.allreduce(mine(3, seed=i), name=f"mean {i}"), np.sum(there, 0) / size)
        check(hvd.allgather(mine(1, 3, seed=i), name=f"rows {i}"), np.stack(there))
        check(hvd.broadcast(mine(3, seed=i), size - 1, name=f"from the last {i}"), there[-1])
    assert hvd.join() in range(size)
    check(hvd.allreduce(mine(3), op=hvd.Sum), everyones(hvd.global_process_set, 3).sum(0))


# ---- objects and parameters -------------------------------------------------------------------------------


def test_objects(ranks: hvd.ProcessSet) -> None:
    members = ranks.ranks or []
    for root in members:
        assert hvd.broadcast_object({"rank": hvd.rank(), "list": [1, "two"]}, root, process_set=ranks) == {
            "rank": root, "list": [1, "two"],
        }  # fmt: skip
    assert hvd.broadcast_object(hvd.rank(), members[0], name="named", process_set=ranks) == members[0]
    assert hvd.allgather_object("x" * hvd.rank(), name="texts") == ["x" * rank for rank in range(hvd.size())]


@pytest.mark.parametrize("form", ["state_dict", "named list", "list"])
def test_broadcast_parameters(form: str) -> None:
    root = hvd.size() - 1
    torch.manual_seed(hvd.rank())
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    forms = {
        "state_dict": net.state_dict,
        "named list": lambda: list(net.named_parameters()),
        "list": lambda: list(net.parameters()),
    }
    with torch.no_grad():
        hvd.broadcast_parameters(forms[form](), root_rank=root)
    torch.manual_seed(root)
    same = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.testing.assert_close(net.state_dict(), same.state_dict(), rtol=0, atol=0)


# ---- SyncBatchNorm ----------------------------------------------------------------------------------------


def test_sync_batch_norm_is_batch_norm_of_all_samples() -> None:
    whole = torch.from_numpy(np.concatenate([values(r, 2 + r, 3, 4) for r in range(hvd.size())])).float()
    before = sum(2 + r for r in range(hvd.rank()))
    own = slice(before, before + 2 + hvd.rank())
    x, y = (whole[own].clone().requires_grad_(), whole.clone().requires_grad_())
    ours, theirs = hvd.SyncBatchNorm(3, momentum=0.2), torch.nn.BatchNorm1d(3, momentum=0.2)
    weights = torch.linspace(-1, 1, y.numel()).view_as(y)
    result, wanted = ours(x), theirs(y)
    (result * weights[own]).sum().backward()
    (wanted * weights).sum().backward()
    torch.testing.assert_close(result, wanted[own])
    torch.testing.assert_close(x.grad, y.grad[own])
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    for one, other in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        torch.testing.assert_close(hvd.allreduce(one.grad, op=hvd.Sum), other.grad, atol=1e-5, rtol=1e-5)
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours(x), theirs(y)[own])
