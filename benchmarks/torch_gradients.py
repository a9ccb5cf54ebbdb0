# SPDX-License-Identifier: Apache-2.0
"""Gradients without a neural network: backward() computes nothing and returns existing tensors.

So the measured time is that of each library, from the hooks of the parameters to the reduced gradients.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from harness import COMM, check_sum, random_data
from libraries import Gloo, Horovod, Hpccoll, Library
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

PERIOD = 1 << 20  # values: the check must not take longer than the measurement

Step = Callable[[], None]
"""One backward pass and the reduction of its gradients."""


class _HandOut(torch.autograd.Function):
    """Returns `memory` as the gradient of one parameter, without a copy, after a pause."""

    @staticmethod
    def forward(
        ctx: Any, before: torch.Tensor, parameter: torch.Tensor, memory: torch.Tensor, pause: float
    ) -> torch.Tensor:
        ctx.memory, ctx.pause = memory, pause
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        if ctx.pause:
            time.sleep(ctx.pause)
        return torch.zeros(()), ctx.memory.detach(), None, None


class Parameters(torch.nn.Module):
    """Parameters of these names and shapes, each in a separate layer, in forward order.

    :param pause: seconds that the backward pass of each layer waits, as if a device computed
    """

    def __init__(self, shapes: Sequence[tuple[str, tuple[int, ...]]], pause: float = 0.0) -> None:
        super().__init__()
        self.pause = pause
        for name, shape in shapes:
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.zeros(shape)))
        self.memory = [torch.zeros(shape) for _, shape in shapes]

    def forward(self) -> torch.Tensor:
        x = torch.zeros((), requires_grad=True)
        for parameter, memory in zip(self.parameters(), self.memory, strict=True):
            x = _HandOut.apply(x, parameter, memory, self.pause)
        return x

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self.memory)

    def forget(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None

    def fill(self) -> None:
        """Fill with random values of this rank, which repeat after PERIOD values."""
        total = sum(memory.numel() for memory in self.memory)
        values = torch.from_numpy(random_data(COMM.rank, PERIOD)).repeat(-(-total // PERIOD))[:total]
        for memory, part in zip(self.memory, values.split([m.numel() for m in self.memory]), strict=True):
            memory.copy_(part.view_as(memory))

    def verifier(self, step: Step, tolerance: float) -> Step:
        """Fill, step, and compare every gradient with the float64 mean of all ranks; then write zeros for timing."""

        def verify() -> None:
            self.fill()
            step()
            flat = torch.cat([p.grad.reshape(-1) for p in self.parameters()]) * COMM.size
            for part in flat.split(PERIOD):
                check_sum(part.numpy(), part.numel(), tolerance=tolerance)
            for memory in self.memory:
                memory.zero_()

        return verify


def optimizer_for(library: Library, model: torch.nn.Module, fp16: bool) -> Any:
    """Return the library's DistributedOptimizer; None: it has none."""
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    match library:
        case Hpccoll():
            import hpccoll.torch as hvd
        case Horovod(hvd=hvd):
            pass
        case _:
            return None
    compression = hvd.Compression.fp16 if fp16 else hvd.Compression.none
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), compression=compression)


def ddp_for(library: Library, model: torch.nn.Module, fp16: bool) -> Any:
    """Return DistributedDataParallel over the library's process group; None: it has none."""
    match library:
        case Hpccoll():
            import hpccoll.torch  # noqa: F401  # registers the backend

            if not dist.is_initialized():
                dist.init_process_group("hpccoll")
        case Gloo():
            pass
        case _:
            return None
    ddp = DistributedDataParallel(model)
    if fp16:
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return ddp
