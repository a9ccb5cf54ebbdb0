# SPDX-License-Identifier: Apache-2.0
"""Ranks that train together come to the weights that one process reaches with all their samples."""

from functools import partial

import pytest
import torch

import hpccoll.torch as hvd
from hpccoll.torch import DistributedOptimizer

pytestmark = pytest.mark.mpi

EXACT = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"named_parameters": None},
        {"groups": 1},
        {"groups": 3},
        {"groups": 100},
        {"gradient_predivide_factor": 4.0},
        {"groups": 2, "gradient_predivide_factor": 4.0},
    ],
    ids=str,
)
def test_options(pair, options):
    both = pair(options=options)
    both.train(5)
    both.assert_equal(**EXACT)


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.Adam, lr=0.01),
        partial(torch.optim.AdamW, lr=0.01, fused=True),
        partial(torch.optim.SGD, lr=0.1, nesterov=True, momentum=0.9, weight_decay=0.01),
    ],
    ids=["Adam", "fused AdamW", "Nesterov"],
)
def test_optimizers(pair, make):
    both = pair(make=make)
    both.train(5)
    both.assert_equal(rtol=1e-4, atol=1e-5)
    assert isinstance(both.optimizer, type(both.optimizer_alone))
    assert type(both.optimizer).__name__ == type(both.optimizer_alone).__name__
    assert both.optimizer.defaults == both.optimizer_alone.defaults


def test_a_sum_with_the_rate_divided_by_the_ranks(pair, world):
    both = pair(options={"op": hvd.Sum})
    both.optimizer.param_groups[0]["lr"] /= world.size
    both.train(5)
    both.assert_equal(**EXACT)


@pytest.mark.parametrize("groups", [None, 2])
def test_gradients_add_up_over_the_passes_of_a_step(pair, groups):
    """They are summed: the process alone makes the same passes, and divides by nothing."""
    both = pair(options={"backward_passes_per_step": 3, "groups": groups})
    for step in range(4):
        both.optimizer.zero_grad()
        both.optimizer_alone.zero_grad()
        for turn in range(3):
            both.backward(3 * step + turn)
        both.optimizer.step()
        both.optimizer_alone.step()
    both.assert_equal(**EXACT)
    both.optimizer.set_backward_passes_per_step(1)
    both.train(2)
    both.assert_equal(**EXACT)


@pytest.mark.parametrize(("compression", "bits"), [("fp16", 11), ("bf16", 8)])
def test_compression(pair, compression, bits):
    """Each of few steps rounds to so many bits."""
    both = pair(options={"compression": getattr(hvd.Compression, compression)})
    both.train(5)
    both.assert_equal(rtol=0, atol=5 * 2.0**-bits)


def test_gradients_in_another_order_of_dimensions_stay_where_they_are(pair):
    both = pair()
    both.model.to(memory_format=torch.channels_last)
    both.optimizer = DistributedOptimizer(both.make(both.model.parameters()), both.model.named_parameters())
    both.backward(0)
    gradient = both.model.convolution.weight.grad
    assert not gradient.is_contiguous()
    address = gradient.data_ptr()
    both.optimizer.step()
    both.optimizer_alone.step()
    assert both.model.convolution.weight.grad.data_ptr() == address
    both.train(3, first=1)
    both.assert_equal(**EXACT)


def test_scalars_and_complex_numbers(world):
    scalar = torch.nn.Parameter(torch.tensor(1.0))
    phase = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer = DistributedOptimizer(torch.optim.SGD([scalar, phase], lr=1.0))
    (scalar * world.rank + (phase * (world.rank + 1j)).abs().sum()).backward()
    want = sum((torch.ones(1) * (r + 1j)).abs() for r in range(world.size)) / world.size
    optimizer.synchronize()
    torch.testing.assert_close(scalar.grad, torch.tensor((world.size - 1) / 2))
    torch.testing.assert_close(phase.grad, want.to(torch.complex64).expand(3))


def test_lbfgs_evaluates_as_often_on_every_rank(pair):
    both = pair(make=partial(torch.optim.LBFGS, lr=0.5, max_iter=8, line_search_fn="strong_wolfe"))
    data = both.batch(0)
    for model, optimizer, (x, y) in (
        (both.model, both.optimizer, both.mine(*data)),
        (both.alone, both.optimizer_alone, data),
    ):

        def closure(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
    both.assert_equal(rtol=1e-3, atol=1e-4)


def test_a_closure_of_an_ordinary_optimizer(pair):
    both = pair()
    data = both.batch(0)
    for model, optimizer, (x, y) in (
        (both.model, both.optimizer, both.mine(*data)),
        (both.alone, both.optimizer_alone, data),
    ):

        def closure(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        assert optimizer.step(closure) > 0
    both.assert_equal(**EXACT)
