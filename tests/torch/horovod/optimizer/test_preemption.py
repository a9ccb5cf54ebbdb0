# SPDX-License-Identifier: Apache-2.0
"""A training stops after the same step on all ranks; docs/with-ddp.md has one with DDP."""

import os
import random
import signal

import pytest
import torch

import hpccoll
import hpccoll.torch as hvd


@pytest.mark.mpi(min_size=1)
@pytest.mark.parametrize("seed", range(3))
def test_a_signal_to_one_rank_stops_all_after_its_step(seed: int) -> None:
    """The gradients of the step carry it to the others."""
    hvd.init()
    chance = random.Random(seed)
    chosen, last = chance.randrange(hvd.size()), chance.randrange(20)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    with hpccoll.preemption() as p:
        for step in range(1000):
            if step == last and hvd.rank() == chosen:
                os.kill(os.getpid(), signal.SIGUSR1)
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            if p.should_stop():
                break
    assert hpccoll.allgather_object(step) == [last] * hvd.size()
    hvd.shutdown()
