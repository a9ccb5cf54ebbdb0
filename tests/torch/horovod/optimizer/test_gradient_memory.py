# SPDX-License-Identifier: Apache-2.0
"""Memory of gradients that only PyTorch has; tests/frontend/test_optimizer.py has the other kinds.

A gradient is released when its reduction is finished.
"""

import weakref

import pytest
import torch

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
