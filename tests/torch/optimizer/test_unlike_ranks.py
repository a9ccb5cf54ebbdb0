# SPDX-License-Identifier: Apache-2.0
"""Ranks whose gradients differ in kind: some missing, some sparse, some of another shape; and wrong arguments."""

import pytest
import torch

import hpccoll
import hpccoll.torch as hvd
from hpccoll.torch import DistributedOptimizer

pytestmark = pytest.mark.mpi


def two(world, **options):
    """A parameter of which each rank has a gradient and one of which only the last rank has."""
    torch.manual_seed(0)
    everywhere, somewhere = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2))
    names = [("everywhere", everywhere), ("somewhere", somewhere)]
    return (
        everywhere,
        somewhere,
        DistributedOptimizer(torch.optim.SGD([*(p for _, p in names)], lr=1.0), names, **options),
    )


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"backward_passes_per_step": 2}], ids=str)
def test_who_has_no_gradient_brings_zeros(world, options):
    everywhere, somewhere, optimizer = two(world, **options)
    for step in range(1, 4):
        optimizer.zero_grad()
        loss = everywhere.sum()
        if world.rank == world.size - 1:
            loss = loss + world.size * somewhere.sum()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(everywhere.data, torch.full((3,), -1.0 * step))
        torch.testing.assert_close(somewhere.data, torch.full((2,), -1.0 * step))


def test_a_rank_without_any_gradient(world):
    everywhere, _, optimizer = two(world)
    for _ in range(2):
        optimizer.zero_grad()
        if world.rank == 0:
            (world.size * everywhere).sum().backward()
        optimizer.step()
    torch.testing.assert_close(everywhere.data, torch.full((3,), -2.0))


class Words(torch.nn.Module):
    """An embedding with sparse gradients, and something dense."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 3, sparse=True, dtype=dtype)
        self.scale = torch.nn.Parameter(torch.ones(3, dtype=dtype))
        torch.nn.init.ones_(self.embedding.weight)

    def forward(self, words):
        return (self.embedding(words) * self.scale).sum()


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sparse_gradients(world, op, dtype):
    model = Words(dtype)
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), op=op
    )
    model(torch.tensor([world.rank, world.rank, 9])).backward()
    optimizer.synchronize()
    gradient = model.embedding.weight.grad
    assert gradient.is_sparse
    want = torch.zeros(10, 3, dtype=dtype)
    for rank in range(world.size):
        want[rank] += 2
        want[9] += 1
    torch.testing.assert_close(gradient.to_dense(), want / (world.size if op == hvd.Average else 1))


def test_sparse_gradients_made_dense(world):
    model = Words()
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), sparse_as_dense=True, groups=1
    )
    model(torch.tensor([world.rank])).backward()
    optimizer.synchronize()
    want = torch.zeros(10, 3)
    want[: world.size] = 1 / world.size
    torch.testing.assert_close(model.embedding.weight.grad.to_dense(), want)


@pytest.mark.mpi(min_size=2)
def test_a_sparse_gradient_that_a_rank_has_not(world):
    """In the first step the last rank cannot know that the gradient is sparse elsewhere; later it does."""
    model = Words()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        if world.rank < world.size - 1:
            model(torch.tensor([4])).backward()
        optimizer.synchronize()
        gradient = model.embedding.weight.grad
        assert gradient.is_sparse
        want = torch.zeros(10, 3)
        want[4] = (world.size - 1) / world.size
        torch.testing.assert_close(gradient.to_dense(), want)


@pytest.mark.mpi(min_size=2)
def test_sparse_and_dense_do_not_mix(world):
    """All ranks get the same error, and the World goes on."""
    parameter = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("table", parameter)])
    parameter.grad = torch.eye(4, 2).to_sparse(1) if world.rank else torch.eye(4, 2)
    with pytest.raises(hpccoll.MismatchError, match="table") as caught:
        optimizer.step()
    assert len(set(hpccoll.allgather_object(str(caught.value)))) == 1


@pytest.mark.mpi(min_size=2)
def test_sparse_gradients_in_a_group_are_refused(world):
    model = Words()
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), groups=1
    )
    with pytest.raises(hpccoll.UnsupportedError, match=r"embedding\.weight is sparse, and it is in a group"):
        model(torch.tensor([1])).backward()
    assert optimizer.param_groups


@pytest.mark.mpi(min_size=2)
def test_other_shapes_are_one_error_for_all(world):
    parameter, fine = torch.nn.Parameter(torch.zeros(3 + world.rank % 2)), torch.nn.Parameter(torch.zeros(2))
    optimizer = DistributedOptimizer(
        torch.optim.SGD([parameter, fine], lr=1.0), [("odd", parameter), ("even", fine)]
    )
    (parameter.sum() + fine.sum()).backward()
    with pytest.raises(hpccoll.MismatchError, match=r"gradient\.odd"):
        optimizer.step()
    torch.testing.assert_close(fine.grad, torch.ones(2))
    fine.grad = parameter.grad = None
    assert hpccoll.allreduce(torch.ones(1)) == world.size


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("groups", [1, "lists"])
def test_other_groups_are_one_error_for_all(world, groups):
    a, b = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
    names = [("a", a), ("b" if groups == "lists" or world.rank == 0 else "c", b)]
    if groups == "lists":
        groups = [[a, b] if world.rank == 0 else [b, a]]
    with pytest.raises(hpccoll.MismatchError, match=r"groups: rank 0 has .* where rank 1 has"):
        DistributedOptimizer(torch.optim.SGD([a, b], lr=1.0), names, groups=groups)


@pytest.mark.mpi(min_size=2)
def test_the_order_of_parameters_may_differ_in_numbered_groups(world):
    parts = {name: torch.nn.Parameter(torch.zeros(3)) for name in "abcde"}
    names = list(parts.items())
    if world.rank:
        names.reverse()
    optimizer = DistributedOptimizer(torch.optim.SGD([p for _, p in names], lr=1.0), names, groups=2)
    sum((at + 1) * part.sum() for at, part in enumerate(parts.values())).backward()
    optimizer.step()
    for at, part in enumerate(parts.values()):
        torch.testing.assert_close(part.data, torch.full((3,), -1.0 - at))


def test_wrong_arguments(world):
    a, b = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([a, b], lr=1.0)
    with pytest.raises(ValueError, match="Found duplicates: x"):
        DistributedOptimizer(sgd, [("x", a), ("x", b)])
    with pytest.raises(ValueError, match=r"were not named: .* number 1 of shape \(3,\)"):
        DistributedOptimizer(sgd, [("x", a)])
    with pytest.raises(ValueError, match="sequence of tuples"):
        DistributedOptimizer(sgd, [a, b])
    with pytest.raises(ValueError, match="predivide_factor not supported"):
        DistributedOptimizer(sgd, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        DistributedOptimizer(sgd, backward_passes_per_step=0)
    with pytest.raises(ValueError, match="non-negative integer"):
        DistributedOptimizer(sgd, groups=-1)
    with pytest.raises(ValueError, match="must consist of"):
        DistributedOptimizer(sgd, groups=[["a"]])
    with pytest.raises(ValueError, match="only appear once"):
        DistributedOptimizer(sgd, groups=[[a, b], [a]])
    with pytest.warns(DeprecationWarning, match="num_groups"):
        DistributedOptimizer(sgd, num_groups=1)
