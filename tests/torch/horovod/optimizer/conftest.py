# SPDX-License-Identifier: Apache-2.0
"""Small networks, trained by all ranks of a job together and by one process alone, with the same results."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from mpi4py import MPI

import hpccoll
from hpccoll.torch import DistributedOptimizer

BATCH = 4
"""Samples of a rank."""


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["1 node", "2 nodes"])
def world(request: pytest.FixtureRequest) -> Iterator[hpccoll.World]:
    """The default World of the job, as one node and as two."""
    nodes = min(int(request.param[0]), MPI.COMM_WORLD.size)
    made = hpccoll.init(verbose=0, nodes=str(nodes))
    yield made
    hpccoll.shutdown()


class Network(torch.nn.Module):
    """A convolution, a normalisation that keeps no statistics, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 3, 3)
        self.norm = torch.nn.GroupNorm(1, 3)
        self.head = torch.nn.Linear(3 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.convolution(x))).flatten(1))


SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


@dataclass
class Pair:
    """The same network twice: `model` for the job, `alone` for this process."""

    world: hpccoll.World
    make: Callable[[Any], torch.optim.Optimizer] = SGD
    options: dict[str, Any] = field(default_factory=dict)
    network: Callable[[], torch.nn.Module] = Network

    def __post_init__(self) -> None:
        torch.manual_seed(7)
        self.model, self.alone = self.network(), self.network()
        self.alone.load_state_dict(self.model.state_dict())
        options = {"named_parameters": self.model.named_parameters(), **self.options}
        self.optimizer = DistributedOptimizer(self.make(self.model.parameters()), **options)
        self.optimizer_alone = self.make(self.alone.parameters())

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch of all ranks: BATCH samples of each, in order."""
        generator = torch.Generator().manual_seed(1000 + step)
        x = torch.randn(BATCH * self.world.size, 2, 6, 6, generator=generator)
        return x, torch.randint(0, 5, (BATCH * self.world.size,), generator=generator)

    def mine(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return this rank's part of the result of batch()."""
        return [t[BATCH * self.world.rank : BATCH * (self.world.rank + 1)] for t in tensors]

    def backward(self, step: int) -> None:
        """Compute the gradients of both, the job's from this rank's samples."""
        data = self.batch(step)
        for model, (x, y) in ((self.model, self.mine(*data)), (self.alone, data)):
            torch.nn.functional.cross_entropy(model(x), y).backward()

    def train(self, steps: int, first: int = 0) -> None:
        for step in range(first, first + steps):
            self.optimizer.zero_grad()
            self.optimizer_alone.zero_grad()
            self.backward(step)
            self.optimizer.step()
            self.optimizer_alone.step()

    def assert_equal(self, **tolerance: float) -> None:
        for (name, a), b in zip(self.model.named_parameters(), self.alone.parameters(), strict=True):
            torch.testing.assert_close(a, b, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture
def pair(world: hpccoll.World) -> Callable[..., Pair]:
    return lambda **fields: Pair(world, **fields)
