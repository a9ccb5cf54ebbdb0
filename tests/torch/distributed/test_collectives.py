# SPDX-License-Identifier: Apache-2.0
"""Each operation of torch.distributed through backend "hpccoll", beside what the ranks' inputs say it must give."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpccoll.errors import HpccollError, MismatchError

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.usefixtures("group"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # names that newer versions of torch call otherwise
]

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
MOVED = [*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float8_e4m3fn]
Op = dist.ReduceOp


def inputs(dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (5, 3)) -> list[torch.Tensor]:
    """One tensor a rank, the same on all ranks; small integers, so that every sum is exact."""
    generator = torch.Generator().manual_seed(7)
    values = torch.randint(1, 4, (dist.get_world_size(), *shape), generator=generator)
    return list((values % 2 == 0 if dtype == torch.bool else values).to(dtype))


def mine(each: list[torch.Tensor]) -> torch.Tensor:
    return each[dist.get_rank()].clone()


REDUCED = {
    Op.SUM: lambda each: reduce(torch.add, each),
    Op.PRODUCT: lambda each: reduce(torch.mul, each),
    Op.MIN: lambda each: reduce(torch.minimum, each),
    Op.MAX: lambda each: reduce(torch.maximum, each),
    Op.BAND: lambda each: reduce(torch.bitwise_and, each),
    Op.BOR: lambda each: reduce(torch.bitwise_or, each),
    Op.BXOR: lambda each: reduce(torch.bitwise_xor, each),
}


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("op", REDUCED, ids=lambda op: op.name)
def test_all_reduce(op: Any, dtype: torch.dtype) -> None:
    each = inputs(dtype)
    x = mine(each)
    if op in (Op.BAND, Op.BOR, Op.BXOR) and dtype.is_floating_point:
        with pytest.raises(TypeError, match=f"{op.name} of .* is not defined"):
            dist.all_reduce(x, op)
        return
    dist.all_reduce(x, op)
    assert torch.equal(x, REDUCED[op](each))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_average_and_scaled_sum(dtype: torch.dtype) -> None:
    each = inputs(dtype)
    x, y = mine(each), mine(each)
    dist.all_reduce(x, Op.AVG)
    torch.testing.assert_close(x, (sum(t.double() for t in each) / len(each)).to(dtype))
    dist.all_reduce(y, dist._make_nccl_premul_sum(0.5))
    assert torch.equal(y, sum(t * 0.5 for t in each))


def test_complex_sums() -> None:
    each = [torch.complex(t, 2 * t) for t in inputs()]
    x = mine(each)
    dist.all_reduce(x)
    assert torch.equal(x, sum(each))


def test_all_reduce_of_shapes_and_strides() -> None:
    for shape in ((), (0,), (1,), (3, 0), (2, 3, 4)):
        x = torch.ones(shape)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full(shape, float(dist.get_world_size())))
    whole = torch.zeros(4, 6)
    view = whole[1:3, ::2].t()
    view += dist.get_rank() + 1
    total = sum(range(1, dist.get_world_size() + 1))
    dist.all_reduce(view)
    assert (view == total).all()
    assert whole.sum() == 6 * total


def test_all_reduce_of_a_parameter() -> None:
    x = torch.ones(3, requires_grad=True)
    dist.all_reduce(x)
    assert (x.detach() == dist.get_world_size()).all()


def test_all_reduce_coalesced() -> None:
    each = [inputs(), inputs(shape=(7,))]
    xs = [mine(one) for one in each]
    dist.all_reduce_coalesced(xs)
    for x, one in zip(xs, each, strict=True):
        assert torch.equal(x, sum(one))


@pytest.mark.parametrize("op", [Op.SUM, Op.AVG, Op.MAX], ids=lambda op: op.name)
def test_reduce(op: Any) -> None:
    each = inputs()
    for root in range(dist.get_world_size()):
        x = mine(each)
        dist.reduce(x, root, op)
        expected = sum(each) / len(each) if op == Op.AVG else REDUCED[op](each)
        torch.testing.assert_close(x, expected if dist.get_rank() == root else mine(each))


def test_reduce_of_strided_tensors_that_does_not_wait() -> None:
    """Several in flight at once; what lies between the elements stays."""
    size, rank = dist.get_world_size(), dist.get_rank()
    wholes = [torch.full((3, 4), float(rank)) for _ in range(size)]
    works = [dist.reduce(wholes[root][:, ::2], root, async_op=True) for root in range(size)]
    for root, (whole, work) in enumerate(zip(wholes, works, strict=True)):
        work.wait()
        assert whole[:, ::2].eq(sum(range(size)) if rank == root else rank).all()
        assert whole[:, 1::2].eq(rank).all()


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_broadcast(dtype: torch.dtype) -> None:
    each = inputs(dtype)
    for root in range(dist.get_world_size()):
        x = mine(each)
        dist.broadcast(x, root)
        assert torch.equal(x.view(torch.uint8), each[root].view(torch.uint8))


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_all_gather(dtype: torch.dtype) -> None:
    each = inputs(dtype)
    parts = [torch.empty_like(t) for t in each]
    dist.all_gather(parts, mine(each))
    together, stacked = torch.cat(parts), torch.empty(len(each), *parts[0].shape, dtype=dtype)
    assert torch.equal(together.view(torch.uint8), torch.cat(each).view(torch.uint8))
    dist.all_gather_into_tensor(stacked, mine(each))
    assert torch.equal(stacked.view(torch.uint8), torch.stack(each).view(torch.uint8))


def test_all_gather_into_strided_tensors() -> None:
    each = inputs(shape=(4,))
    home = torch.zeros(4, len(each))
    dist.all_gather(list(home.unbind(1)), mine(each))
    assert torch.equal(home, torch.stack(each, 1))


def test_all_gather_of_different_sizes() -> None:
    size = dist.get_world_size()
    parts = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(parts, torch.full((dist.get_rank() + 1,), float(dist.get_rank())))
    assert all((part == r).all() for r, part in enumerate(parts))


def test_all_gather_coalesced() -> None:
    each = [inputs(), inputs(shape=(2,))]
    outputs = [[torch.empty_like(one[r]) for one in each] for r in range(dist.get_world_size())]
    dist.all_gather_coalesced(outputs, [mine(one) for one in each])
    assert all(torch.equal(outputs[r][at], one[r]) for at, one in enumerate(each) for r in range(len(one)))


@pytest.mark.parametrize("op", [Op.SUM, Op.AVG, Op.MAX], ids=lambda op: op.name)
def test_reduce_scatter(op: Any) -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    each = inputs(shape=(size, 2, 3))
    total = sum(each) / size if op == Op.AVG else REDUCED[op](each)
    out, tensor_out = torch.empty(2, 3), torch.empty(2, 3)
    dist.reduce_scatter(out, list(mine(each).unbind()), op)
    dist.reduce_scatter_tensor(tensor_out, mine(each), op)
    torch.testing.assert_close(out, total[rank])
    torch.testing.assert_close(tensor_out, total[rank])


@pytest.mark.parametrize("stride", [1, 2])
def test_reduce_scatter_into_a_share_of_the_input(stride: int) -> None:
    """NCCL does so in place, and DeepSpeed's ZeRO-3 asks for it on all backends."""
    size, rank = dist.get_world_size(), dist.get_rank()
    each = inputs(shape=(size, 4))
    x = torch.empty(size, 4 * stride)[:, ::stride].copy_(each[rank])
    dist.reduce_scatter_tensor(x[rank], x)
    torch.testing.assert_close(x[rank], sum(each)[rank])
    flat = each[rank].clone().view(-1)
    shares = flat.tensor_split([3, 3 + 4 * (size > 1)])  # across the borders of the shares
    out = shares[1] if size > 1 else flat
    dist.reduce_scatter_tensor(out, flat)
    torch.testing.assert_close(out, sum(each)[rank])


def test_reduce_scatter_of_different_sizes() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    out = torch.empty(rank + 1)
    dist.reduce_scatter(out, [torch.full((r + 1,), float(r)) for r in range(size)])
    assert (out == rank * size).all()


def test_coalesced_by_the_manager() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    xs = [torch.full((n,), float(rank)) for n in (2, 3)]
    gathered = [torch.empty(size * len(x)) for x in xs]
    scattered = [torch.empty(n) for n in (2, 3)]
    with dist._coalescing_manager():
        for x, out in zip(xs, gathered, strict=True):
            dist.all_gather_into_tensor(out, x)
    with dist._coalescing_manager(async_ops=True) as manager:
        for out, x in zip(scattered, gathered, strict=True):
            dist.reduce_scatter_tensor(out, x)
    manager.wait()
    for x, out, part in zip(xs, gathered, scattered, strict=True):
        assert torch.equal(out, torch.arange(size).repeat_interleave(len(x)).float())
        assert (part == size * rank).all()
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    assert all((x == sum(range(size))).all() for x in xs)


def test_all_to_all() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    sent = [torch.full((r + 1, rank + 1), 10.0 * rank + r) for r in range(size)]
    received = [torch.empty(rank + 1, r + 1) for r in range(size)]
    dist.all_to_all(received, sent)
    assert all((t == 10 * r + rank).all() for r, t in enumerate(received))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_all_to_all_single(dtype: torch.dtype) -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    x = torch.arange(size * 2).view(size, 2).to(dtype) + 8 * rank
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    assert torch.equal(out, torch.stack([8 * r + torch.arange(2 * rank, 2 * rank + 2) for r in range(size)]).to(dtype))
    splits = list(range(size))
    ragged, received = torch.full((sum(splits), 3), rank).to(dtype), torch.empty(rank * size, 3, dtype=dtype)
    dist.all_to_all_single(received, ragged, [rank] * size, splits)
    assert torch.equal(received[:, 0], torch.arange(size).repeat_interleave(rank).to(dtype))


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_gather_and_scatter(dtype: torch.dtype) -> None:
    each = inputs(dtype)
    for root in range(dist.get_world_size()):
        is_root = dist.get_rank() == root
        parts = [torch.empty_like(t) for t in each] if is_root else None
        dist.gather(mine(each), parts, root)
        for part, want in zip(parts or [], each if is_root else [], strict=True):
            assert torch.equal(part.view(torch.uint8), want.view(torch.uint8))
        out = torch.empty_like(each[0])
        dist.scatter(out, list(each) if is_root else None, root)
        assert torch.equal(out.view(torch.uint8), mine(each).view(torch.uint8))


def test_gather_and_scatter_that_do_not_wait() -> None:
    """Into and from strided tensors, several in flight at once."""
    size, rank = dist.get_world_size(), dist.get_rank()
    wholes, outs = [torch.zeros(3, size) for _ in range(size)], [torch.zeros(3, 2) for _ in range(size)]
    works = []
    for root in range(size):
        columns = list(wholes[root].unbind(1)) if rank == root else None
        works.append(dist.gather(torch.full((3,), float(rank)), columns, root, async_op=True))
        given = list((torch.arange(size) + 10.0 * root).expand(3, size).unbind(1)) if rank == root else None
        works.append(dist.scatter(outs[root][:, 1], given, root, async_op=True))
    for work in works:
        work.wait()
    for root, (whole, out) in enumerate(zip(wholes, outs, strict=True)):
        assert whole.eq(torch.arange(size) if rank == root else 0).all()
        assert out[:, 1].eq(10 * root + rank).all()
        assert out[:, 0].eq(0).all()


def test_send_and_recv() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    if rank == 0:
        for peer in range(1, size):
            dist.send(torch.full((4, 2), float(peer)), peer, tag=7)
        sources = set()
        for _ in range(1, size):
            x = torch.empty(3, dtype=torch.bfloat16)
            source = dist.recv(x, tag=8)
            assert (x == source).all()
            sources.add(source)
        assert sources == set(range(1, size))
    else:
        home = torch.zeros(2, 4)
        assert dist.recv(home.t(), 0, tag=7) == 0
        assert (home == rank).all()
        dist.send(torch.full((3,), rank, dtype=torch.bfloat16), 0, tag=8)


def test_a_negative_tag_is_refused() -> None:
    """As gloo does: hpccoll's own number for any tag received messages of every tag."""
    group, x = dist.group.WORLD, torch.full((1,), -1.0)  # torch.distributed refuses messages of a rank to itself
    after, before = (group.rank() + 1) % group.size(), (group.rank() - 1) % group.size()
    sent = group.send([torch.full((1,), float(group.rank()))], after, 5)
    for call in (group.send, group.recv):
        with pytest.raises(HpccollError, match="tag is -1"):
            call([x], before, -1)
    with pytest.raises(HpccollError, match="tag is -1"):
        group.recv_anysource([x], -1)
    assert x.item() == -1
    group.recv([x], before, 5).wait()
    sent.wait()
    assert x.item() == before


def test_a_ring_of_a_batch() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    sent, received = torch.full((20000,), float(rank)), torch.empty(20000)
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, sent, (rank + 1) % size),
        dist.P2POp(dist.irecv, received, (rank - 1) % size),
    ])  # fmt: skip
    for work in works:
        work.wait()
    assert (received == (rank - 1) % size).all()


def test_objects_of_two_ranks() -> None:
    if dist.get_rank() == 0 and dist.get_world_size() > 1:
        dist.send_object_list([{"a": 1}, "b"], 1)
    elif dist.get_rank() == 1:
        got: list[Any] = [None, None]
        dist.recv_object_list(got, 0)
        assert got == [{"a": 1}, "b"]


def test_objects() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    every: list[Any] = [None] * size
    dist.all_gather_object(every, {"rank": rank, "more": "x" * rank})
    assert every == [{"rank": r, "more": "x" * r} for r in range(size)]
    some = ["a", {1: 2}] if rank == 0 else [None, None]
    dist.broadcast_object_list(some, 0)
    assert some == ["a", {1: 2}]
    got: list[Any] = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert got == [f"for {rank}"]
    collected = [None] * size if rank == 0 else None
    dist.gather_object(rank, collected, 0)
    assert collected is None or collected == list(range(size))


def test_mismatch_names_ranks_and_the_group_goes_on() -> None:
    if dist.get_world_size() > 1:
        with pytest.raises(dist.DistBackendError, match=r"allreduce of process group \S+: .*rank") as caught:
            dist.all_reduce(torch.ones(3 + dist.get_rank()))
        assert isinstance(caught.value.__cause__, MismatchError)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size()


def test_wrong_arguments_are_refused_at_once() -> None:
    size = dist.get_world_size()
    with pytest.raises(ValueError, match="needs one per rank"):
        dist.all_gather([torch.empty(1)] * (size + 1), torch.ones(1))
    with pytest.raises(ValueError, match=r"needs .* times as many"):
        dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * size + 1))
    with pytest.raises(ValueError, match="cannot take"):
        dist.all_gather_into_tensor(torch.empty(2 * size + 1), torch.ones(2))
    with pytest.raises(HpccollError, match="layout"):
        dist.group.WORLD.broadcast([torch.eye(2).to_sparse()])
    with pytest.raises(HpccollError, match="meta"):
        dist.broadcast(torch.ones(2, device="meta"), 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bfloat16])
def test_sparse_tensors_are_added_up(dtype: torch.dtype) -> None:
    """The sum of the dense tensors, in float64; every rank has a row of its own and one of all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dense = [torch.zeros(size + 2, 3, dtype=torch.float64) for _ in range(size)]
    for r, of_rank in enumerate(dense):
        of_rank[r], of_rank[size] = r + 1, 2 * r + 1
    x = dense[rank].to(dtype).to_sparse(1)
    dist.all_reduce(x)
    assert x.is_sparse and x.dtype == dtype and torch.equal(x.to_dense().double(), sum(dense))
    if dtype.is_floating_point:
        mean = dense[rank].to(dtype).to_sparse(1)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert torch.allclose(mean.to_dense().double(), sum(dense) / size, rtol=torch.finfo(dtype).eps)


def test_sparse_tensors_that_do_not_match() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    with pytest.raises(HpccollError, match="SUM or AVG, not MAX"):
        dist.all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.MAX)
    if size > 1:
        with pytest.raises(dist.DistBackendError, match=r"sparse float32\[\] by 2 of \[2, 2\]"):
            dist.all_reduce(torch.eye(2 + rank).to_sparse())


def test_ddp_takes_sparse_gradients() -> None:
    """The mean over the ranks of how often each word came."""
    size, rank = dist.get_world_size(), dist.get_rank()
    words = torch.nn.Embedding(size + 2, 2, sparse=True)
    model = DistributedDataParallel(words)
    model(torch.tensor([rank, size, size])).sum().backward()
    assert words.weight.grad is not None and words.weight.grad.is_sparse
    expected = torch.tensor([1 / size] * size + [2.0, 0.0])[:, None].expand(-1, 2)
    assert torch.allclose(words.weight.grad.to_dense(), expected)


def coalesced(dtype: torch.dtype) -> None:
    """One of three requests of a call is of this type, of which there is no mean if it is bool."""
    inputs = [torch.ones(3 * dist.get_world_size(), dtype=kind) for kind in (torch.float32, dtype, torch.float32)]
    with dist._coalescing_manager():
        for x in inputs:
            dist.reduce_scatter_tensor(torch.empty(3, dtype=x.dtype), x, op=dist.ReduceOp.AVG)


REFUSED: dict[str, Callable[[int, bool], Any]] = {
    "all_gather": lambda n, wrong: dist.all_gather([torch.empty(2) for _ in range(n - wrong)], torch.ones(2)),
    "all_gather_into_tensor": lambda n, wrong: dist.all_gather_into_tensor(torch.empty(2 * n - wrong), torch.ones(2)),
    "reduce_scatter": lambda n, wrong: dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * n - wrong)),
    "all_to_all": lambda n, wrong: dist.all_to_all_single(torch.empty(n), torch.ones(n), [1] * n, [1 + wrong] * n),
    "mean": lambda _, wrong: dist.all_reduce(torch.ones(2).to([torch.float32, torch.bool][wrong]), Op.AVG),
    "coalesced": lambda _, wrong: coalesced(torch.bool if wrong else torch.float32),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_one_rank_refuses_is_an_error_of_all_and_the_group_goes_on(call: str) -> None:
    if dist.get_world_size() == 1:
        return
    for _ in range(3):
        if dist.get_rank() == 1:
            with pytest.raises((ValueError, HpccollError)):
                REFUSED[call](dist.get_world_size(), True)
        else:
            with pytest.raises(dist.DistBackendError, match="rank 1 has refused this call: "):
                REFUSED[call](dist.get_world_size(), False)
        x = torch.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [dist.get_world_size(), dist.get_world_size()]


def test_many_in_flight() -> None:
    """More than there are names."""
    xs = [torch.full((3,), float(i)) for i in range(200)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for work in reversed(works):
        work.wait()
    assert all((x == i * dist.get_world_size()).all() for i, x in enumerate(xs))


OTHERS = [torch.float8_e5m2, torch.uint8, torch.bool]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_dtypes_of_one_size_that_differ_are_an_error(other: torch.dtype) -> None:
    """float8 travels as bytes, but is none: nobody takes its bits for numbers of another type."""
    rank = dist.get_rank()
    dtype = torch.float8_e4m3fn if rank == 0 else other
    x, parts = torch.ones(4).to(dtype), [torch.ones(4).to(dtype) for _ in range(dist.get_world_size())]
    for call in (lambda: dist.broadcast(x, 0), lambda: dist.all_gather(parts, x)):
        with pytest.raises(dist.DistBackendError, match=r"rank 0 has uint8\[.*\] of torch.float8_e4m3fn.*, rank 1 has"):
            call()
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        with pytest.raises(dist.DistBackendError) as caught:
            dist.recv(x, 0)
        assert isinstance(caught.value.__cause__, MismatchError)
    assert torch.equal(x, torch.ones(4).to(dtype))
    dist.barrier()
