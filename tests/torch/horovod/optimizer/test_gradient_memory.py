# SPDX-License-Identifier: Apache-2.0
"""Memory of gradients that only PyTorch has; tests/frontend/test_optimizer.py has the other kinds.

A gradient is released when its reduction is finished.
"""

import weakref

import pytest
import torch

import hpccoll
import hpccoll.torch as hvd
from hpccoll.torch import DistributedOptimizer

pytestmark = pytest.mark.mpi

SHAPE = (2, 3, 4, 4)


def negated(values):
    """Bits of -values that torch takes for values."""
    gradient = torch.complex(torch.zeros(SHAPE), -values).conj().imag
    assert gradient.is_neg()
    return gradient


PLACES = {
    "plain": torch.clone,
    "channels last": lambda values: values.to(memory_format=torch.channels_last),
    "negated": negated,
}


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16], ids=["none", "fp16"])
@pytest.mark.parametrize("groups", [None, 1])
def test_gradients_lie_anywhere(world, compression, groups):
    """Each place after each other one, and twice."""
    parameter = torch.nn.Parameter(torch.zeros(SHAPE))
    optimizer = DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), [("it", parameter)], compression=compression, groups=groups
    )
    values = torch.arange(96.0).reshape(SHAPE)
    mean = values * sum(range(1, world.size + 1)) / world.size
    for before in PLACES.values():
        for after in PLACES.values():
            for place in (before, after, after):
                parameter.grad = place(values * (world.rank + 1))
                optimizer.synchronize()
                torch.testing.assert_close(parameter.grad, mean)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16], ids=["none", "fp16"])
@pytest.mark.parametrize("shape", [SHAPE, (3, 3, 3, 3)])
def test_a_layout_of_one_rank_alone(world, shape, compression):
    """A gradient is one gradient wherever its values lie: also where all orders of its dimensions have one shape."""
    parameter = torch.nn.Parameter(torch.zeros(shape))
    optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("it", parameter)], compression=compression)
    values = torch.arange(1.0, 1.0 + parameter.numel()).reshape(shape)
    mean = values * sum(range(1, world.size + 1)) / world.size
    alone = {"first": [world.size - 1], "then": [world.size - 1, 0], "none": [], "all": list(range(world.size))}
    for ranks in alone.values():
        for _ in range(2):
            place = PLACES["channels last" if world.rank in ranks else "plain"]
            parameter.grad = place(values * (world.rank + 1))
            optimizer.synchronize()
            torch.testing.assert_close(parameter.grad, mean)
            assert parameter.grad.is_contiguous() == (world.rank not in ranks)


def test_layouts_in_a_group_that_differ_are_one_error(world):
    parameters = {name: torch.nn.Parameter(torch.zeros(3, 3, 3, 3)) for name in "ab"}
    optimizer = DistributedOptimizer(
        torch.optim.SGD(parameters.values(), lr=1.0), list(parameters.items()), groups=[list(parameters.values())]
    )
    for place in ("channels last", "plain"):
        for name, parameter in parameters.items():
            lies = place if name == "b" and world.rank == 0 else "plain"
            parameter.grad = PLACES[lies](torch.ones(3, 3, 3, 3) * (world.rank + 1))
        if place == "plain" or world.size == 1:
            optimizer.synchronize()
            assert (parameters["b"].grad == sum(range(1, world.size + 1)) / world.size).all()
            continue
        said = r"rank 0 has .*number 1 float32\[3,3,3,3\] of layout \[0, 2, 3, 1\] .*rank 1 has .*type differs"
        with pytest.raises(hpccoll.MismatchError, match=said):
            optimizer.synchronize()


@pytest.mark.parametrize("other", [torch.float16, torch.bfloat16], ids=str)
def test_values_of_sparse_gradients_have_one_dtype(world, other):
    """Those of bfloat16 travel as bytes, as all do: their bits are no float16."""
    dtype = torch.bfloat16 if world.rank == 0 else other
    parameter = torch.nn.Parameter(torch.zeros(4, 2, dtype=dtype))
    optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("it", parameter)], op=hvd.Sum)
    parameter.grad = torch.sparse_coo_tensor([[1]], torch.ones(1, 2, dtype=dtype), (4, 2), check_invariants=True)
    if other is torch.bfloat16 or world.size == 1:
        optimizer.synchronize()
        assert parameter.grad.to_dense()[:, 0].tolist() == [0, world.size, 0, 0]
        return
    said = r"rank 0 has .* of sparse bfloat16\[2\] by 1, rank 1 has .* of sparse float16\[2\] by 1 \(type differs\)"
    with pytest.raises(hpccoll.MismatchError, match=said):
        optimizer.synchronize()


def test_gradients_of_another_shape_are_seen(world):
    """A parameter may be given other values in another shape; then so are its gradients."""
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("it", parameter)])
    for shape in ((3, 4), (4, 3), (2,), (0, 5), (40, 50)):
        parameter.grad = None
        parameter.data = torch.zeros(shape)
        (parameter * (world.rank + 1)).sum().backward()
        optimizer.synchronize()
        torch.testing.assert_close(parameter.grad, torch.full(shape, (world.size + 1) / 2))


@pytest.mark.parametrize("groups", [None, 1])
def test_a_reduced_gradient_is_let_go(world, groups):
    parameter = torch.nn.Parameter(torch.zeros(5))
    optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("it", parameter)], groups=groups)
    for _ in range(2):
        parameter.sum().backward()
        gradient = weakref.ref(parameter.grad)
        optimizer.step()
        assert gradient() is not None
        optimizer.zero_grad()
        assert gradient() is None
