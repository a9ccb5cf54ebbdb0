# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with op=Adasum combines what each rank's own step changes."""

import gc
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import hpccoll
import hpccoll.torch as hvd
from hpccoll.frontend.adasum import combine

pytestmark = pytest.mark.mpi


def adasum(vectors):
    """In a binary tree over the ranks, by the formula of one pair."""
    while len(vectors) > 1:
        a, b = vectors[0::2], vectors[1::2]
        products = np.stack([(x * y).sum(1) for x, y in ((a, a), (b, b), (a, b))])
        vectors = combine(a, b, products)
    return vectors[0]


@pytest.mark.parametrize(
    "make",
    [partial(torch.optim.SGD, lr=0.5, momentum=0.9), partial(torch.optim.Adam, lr=0.1)],
    ids=["SGD", "Adam"],
)
def test_changes_are_combined(world, make):
    """Compare with optimizers of one process, one per rank, that step with that rank's gradients."""
    parameter = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(make([parameter]), [("p", parameter)], op=hvd.Adasum)
    ranks = [torch.nn.Parameter(torch.ones(5, dtype=torch.float64)) for _ in range(world.size)]
    alone = [make([one]) for one in ranks]
    for step in range(3):
        gradients = [
            torch.randn(5, generator=torch.Generator().manual_seed(9 * step + r)).double() for r in range(world.size)
        ]
        start = parameter.detach().clone()
        optimizer.zero_grad()
        (parameter * gradients[world.rank]).sum().backward()
        if world.size == 3:
            with pytest.raises(NotImplementedError, match="power of two"):
                optimizer.step()
            return
        optimizer.step()
        for one, own, gradient in zip(ranks, alone, gradients, strict=True):
            one.grad = gradient
            own.step()
        changes = np.stack([(one.detach() - start).numpy() for one in ranks])
        torch.testing.assert_close(parameter.detach(), start + torch.from_numpy(adasum(changes)))
        for one in ranks:
            one.data.copy_(parameter.detach())


def test_parameters_added_later_are_combined(world):
    """Against the formula of Adasum: each rank's step of SGD changes a parameter by minus its own gradient."""
    pair = hvd.global_process_set if world.size < 3 else hvd.add_process_set([0, 1])
    if pair.included():
        check_late_parameters(pair)
    if world.size > 2:
        hvd.remove_process_set(pair)


def check_late_parameters(pair):
    first, late = (torch.nn.Parameter(torch.ones(5, dtype=torch.float64)) for _ in range(2))
    sgd = torch.optim.SGD([first], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("first", first)], op=hvd.Adasum, process_set=pair)
    optimizer.add_param_group({"params": [late], "lr": 2.0})
    gradients = [torch.randn(5, generator=torch.Generator().manual_seed(r)).double() for r in range(pair.size())]
    ((first + late) * gradients[pair.rank()]).sum().backward()
    optimizer.step()
    change = torch.from_numpy(adasum(np.stack([-one.numpy() for one in gradients])))
    torch.testing.assert_close(first.detach(), 1 + change)
    torch.testing.assert_close(late.detach(), 1 + 2 * change)


@pytest.mark.mpi(min_size=2)
def test_what_adasum_does_not_have(world):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Adasum)
    optimizer.synchronize()
    with pytest.raises(AssertionError, match="Skipping synchronization is not supported"):
        optimizer.skip_synchronize()
    optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 2
    for _ in range(2):
        parameter.sum().backward()
    if world.size != 3:
        assert optimizer.step(lambda: torch.tensor(3.0)) == 3.0
        torch.testing.assert_close(parameter.detach(), torch.full((2,), -1.0))
    with pytest.raises(ValueError, match="not for Adasum"):
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Adasum, groups=1)


def test_a_mismatch_is_the_only_error():
    """All changes that the ranks disagree about have been waited for: none is told later as a lost error."""
    if hvd.size() == 1:
        return
    pair = hvd.global_process_set if hvd.size() == 2 else hvd.add_process_set([0, 1])
    if pair.included():
        own = torch.nn.Linear(3, 2 + hvd.rank())
        sgd = torch.optim.SGD(own.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(sgd, own.named_parameters(), op=hvd.Adasum, process_set=pair)
        own(torch.ones(1, 3)).sum().backward()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with pytest.raises(hpccoll.MismatchError, match="weight"):
                optimizer.step()
            gc.collect()
            hvd.barrier(pair)
        assert not seen, [str(one.message) for one in seen]
    if hvd.size() > 2:
        hvd.remove_process_set(pair)
