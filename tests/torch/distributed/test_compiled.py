# SPDX-License-Identifier: Apache-2.0
"""torch.compile takes what DDP calls of the backend as it is, and what is trained is the same."""

from collections.abc import Callable

import pytest

PROGRAM = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hpccoll.torch


def trained(compile):
    torch.manual_seed(3)
    layers = torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2)
    model = compile(DistributedDataParallel(torch.nn.Sequential(*layers)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        torch.manual_seed(100 * step + dist.get_rank())
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


torch.set_num_threads(1)
dist.init_process_group("hpccoll")
for one, other in zip(trained(torch.compiler.disable), trained(lambda model: torch.compile(model, backend="eager"))):
    torch.testing.assert_close(one, other)
print("same")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_compiled_model_under_ddp(run_job: Callable[[str], str]) -> None:
    assert run_job(PROGRAM).count("same") == 2
