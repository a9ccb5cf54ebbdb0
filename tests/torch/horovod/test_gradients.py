# SPDX-License-Identifier: Apache-2.0
"""What backward() gives, where each rank differentiates the sum of its own result, weighted by rank + 1."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import hpccoll.torch as hvd

sys.path.insert(0, str(Path(__file__).parents[2]))
import gradient_table

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]


def leaf(*shape: int) -> torch.Tensor:
    return torch.full(shape, 2.0, requires_grad=True)


def weights(ranks: hvd.ProcessSet) -> list[int]:
    """What each rank of the set multiplies its result with."""
    return [rank + 1 for rank in ranks.ranks]


def gradient(result: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the weighted sum of `result` on this rank."""
    of.grad = None
    (result * (hvd.rank() + 1)).sum().backward()
    return of.grad


@pytest.mark.parametrize("name", [None, "named"])
def test_allreduce(ranks, name):
    x, total, n = leaf(3), sum(weights(ranks)), ranks.size()
    how = {"name": name, "process_set": ranks}
    assert gradient(hvd.allreduce(x, op=hvd.Sum, **how), x).tolist() == [total] * 3
    torch.testing.assert_close(gradient(hvd.allreduce(x, **how), x), torch.full((3,), total / n))
    scaled = hvd.allreduce(x, op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5, **how)
    assert gradient(scaled, x).tolist() == [total * 1.5] * 3
    narrow = hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16, **how)
    assert gradient(narrow, x).tolist() == [total] * 3


def test_grouped_allreduce(ranks):
    x, y = leaf(3), leaf(2, 2)
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum, process_set=ranks)
    assert gradient(a, x).tolist() == [sum(weights(ranks))] * 3
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum, process_set=ranks)
    (a.sum() + b.sum()).backward()
    assert y.grad.tolist() == [[ranks.size()] * 2] * 2


def test_all_operations_are_those_of_the_table():
    rank, size = hvd.rank(), hvd.size()
    for operation, formula in gradient_table.column("hpccoll.torch").items():
        x = torch.arange(1.0, size + 1, dtype=torch.float64, requires_grad=True)
        result = gradient_table.calls(hvd)[operation](x)
        (result * torch.from_numpy(gradient_table.weights(rank, len(result)))).sum().backward()
        expected = torch.from_numpy(gradient_table.expected(formula, operation, rank, size))
        torch.testing.assert_close(x.grad, expected, msg=lambda text, operation=operation: f"{operation}: {text}")


def test_twice(ranks):
    """The gradient of a gradient, as gradient penalties need it."""
    x = leaf(3)
    (first,) = torch.autograd.grad(hvd.allreduce(x**3, op=hvd.Sum, process_set=ranks).sum(), x, create_graph=True)
    assert first.tolist() == [3 * 4.0 * ranks.size()] * 3
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [6 * 2.0 * ranks.size()] * 3


def maps(rank: int, size: int) -> dict[str, tuple[np.ndarray, float, float]]:
    """What each operation makes of the vectors of all ranks, one behind the other, for a rank.

    And the factors of docs/gradients.md, with which its derivative is the transpose of that, and the derivative of this
    derivative, which is another operation of the table, the map itself.
    """
    identity, root = np.eye(size * size), gradient_table.root(size)
    own = identity.reshape(size, size, -1)  # the rank, its row
    return {
        "allreduce(op=Sum)": (own.sum(0), 1, 1),
        "allreduce(op=Average)": (own.mean(0), 1, 1),
        "allgather": (identity, 1 / size, 1 / size),
        "broadcast": (own[root], 1 / size, 1 / size),
        "alltoall": (own[:, rank], 1, 1),
        "reducescatter(op=Sum)": (own.sum(0)[rank : rank + 1], size, 1),
        "reducescatter(op=Average)": (own.mean(0)[rank : rank + 1], size, 1),
        "scatter": (own[root, rank : rank + 1], 1, 1),
    }


def test_derivatives_of_unnamed_calls_belong_to_their_calls():
    """Ranks that differentiate two calls in other orders, here in two threads, have the gradients of both."""
    x = leaf(3)
    losses = [hvd.allreduce(x, op=hvd.Sum).sum(), 10 * hvd.allreduce(x, op=hvd.Sum).sum()]
    order = range(2) if hvd.rank() % 2 == 0 else range(1, -1, -1)
    with ThreadPoolExecutor(2) as threads:
        found = {at: threads.submit(torch.autograd.grad, losses[at], x) for at in order}
    assert [found[at].result()[0].tolist() for at in range(2)] == [[hvd.size()] * 3, [10 * hvd.size()] * 3]


def test_the_gradient_of_a_gradient_of_every_operation():
    """As one process computes it that has the vectors of all ranks; a gradient penalty needs it."""
    me, size = hvd.rank(), hvd.size()
    x = np.arange(1.0, size * size + 1) / size
    for operation, call in gradient_table.calls(hvd).items():
        of_ranks = [maps(rank, size)[operation.removeprefix("grouped_")] for rank in range(size)]
        whole, back, again = np.concatenate([part for part, _, _ in of_ranks]), *of_ranks[0][1:]
        result = whole @ x**3
        gradient = 3 * x**2 * (back * whole.T @ (2 * result))
        through = whole @ (again * 3 * x**2)
        second = 6 * x * (back * whole.T @ (2 * result)) + 3 * x**2 * (back * whole.T @ (2 * through))
        mine = torch.tensor(np.split(x, size)[me], requires_grad=True)
        (found,) = torch.autograd.grad((call(mine**3) ** 2).sum(), mine, create_graph=True)
        (twice,) = torch.autograd.grad(found.sum(), mine)
        for got, want in ((found.detach(), gradient), (twice, second)):
            np.testing.assert_allclose(got, np.split(want, size)[me], rtol=1e-12, err_msg=operation)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product], ids=lambda op: op.name)
def test_no_gradient(op):
    x = leaf(3)
    result = hvd.allreduce(x, op=op, name="extreme")
    with pytest.raises(ValueError, match=f"'extreme': there is no gradient of {op.name}"):
        result.sum().backward()


def test_allgather_is_averaged(ranks):
    x = leaf(hvd.rank() + 1, 2)
    mean = sum(weights(ranks)) / ranks.size()
    torch.testing.assert_close(gradient(hvd.allgather(x, process_set=ranks), x), torch.full(x.shape, mean))
    scalar = leaf()
    got = gradient(hvd.allgather(scalar, name="scalar", process_set=ranks), scalar)
    torch.testing.assert_close(got, torch.tensor(mean))
    y = leaf(2)
    a, b = hvd.grouped_allgather([x, y], process_set=ranks)
    x.grad = None
    (a.sum() + 3 * b.sum()).backward()
    torch.testing.assert_close(x.grad, torch.ones(x.shape))
    torch.testing.assert_close(y.grad, torch.full((2,), 3.0))


def test_broadcast_goes_back_to_the_root(ranks):
    for root in ranks.ranks:
        x = leaf(2)
        got = gradient(hvd.broadcast(x, root, process_set=ranks), x)
        mean = sum(weights(ranks)) / ranks.size() if hvd.rank() == root else 0.0
        torch.testing.assert_close(got, torch.full((2,), mean))


def test_alltoall_goes_back(ranks):
    x = leaf(2 * ranks.size(), 3)
    want = torch.tensor(weights(ranks)).repeat_interleave(2)[:, None].expand(-1, 3).float()
    assert torch.equal(gradient(hvd.alltoall(x, process_set=ranks), x), want)
    output, received = hvd.alltoall(x, splits=[2] * ranks.size(), name="split", process_set=ranks)
    assert torch.equal(gradient(output, x), want)
    assert not received.requires_grad


@pytest.mark.parametrize("name", [None, "rows"])
def test_scatter_goes_back_to_the_root(ranks, name):
    splits = [r + 1 for r in range(ranks.size())]
    for root in ranks.ranks:
        x = leaf(sum(splits) if hvd.rank() == root else 1, 2)
        got = gradient(hvd.scatter(x, root, splits, name=name, process_set=ranks), x)
        want = torch.tensor(weights(ranks)).repeat_interleave(torch.tensor(splits))[:, None].expand(-1, 2)
        assert torch.equal(got, want.float() if hvd.rank() == root else torch.zeros(1, 2))


def test_what_only_the_root_has_is_not_recorded():
    x = leaf(2)
    for result in (hvd.reduce(x, root_rank=0), hvd.gather(x, 0)):
        assert (result is None) == (hvd.rank() != 0)
        assert result is None or not result.requires_grad


def test_reducescatter_is_gathered(ranks):
    n = ranks.size()
    x = leaf(n + 1)
    want = torch.tensor([weights(ranks)[0], *weights(ranks)]).float()
    assert torch.equal(gradient(hvd.reducescatter(x, process_set=ranks), x), want)
    assert torch.equal(gradient(hvd.reducescatter(x, op=hvd.Sum, process_set=ranks), x), want * n)
    y = leaf(n, 2)
    a, b = hvd.grouped_reducescatter([x, y], name="two", process_set=ranks)
    x.grad = None
    (a.sum() + b.sum()).backward()
    assert torch.equal(x.grad, torch.ones(n + 1))
    assert torch.equal(y.grad, torch.ones(n, 2))


def test_nothing_is_recorded_without_need():
    assert not hvd.allreduce(torch.ones(2)).requires_grad
    with torch.no_grad():
        assert not hvd.allreduce(leaf(2)).requires_grad
    assert hvd.allreduce_(leaf(2).detach()).tolist() == [2, 2]


def test_autograd_notices_what_is_overwritten():
    x = leaf(3)
    y = x * 1
    z = (y * y).sum()
    hvd.allreduce_(y.detach(), op=hvd.Sum)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_parameters_in_place():
    """A leaf that requires grad is overwritten without autograd's knowledge, contiguous or not."""
    x = torch.full((2, 3), float(hvd.rank()), requires_grad=True)
    hvd.broadcast_(x, 0)
    assert x.eq(0).all()
    y = torch.ones(3, 2).t().requires_grad_()
    assert hvd.allreduce_(y, op=hvd.Sum) is y
    assert y.eq(hvd.size()).all()
    with torch.inference_mode():
        assert hvd.allreduce_(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
