# SPDX-License-Identifier: Apache-2.0
"""Several ways to average gradients over the ranks, with one interface, so that one program can compare them."""

import contextlib
import socket

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hpccoll.torch as hvd


class Averaging:
    """A model and its optimizer. This class is for one process, whose gradients are the mean already.

    It does not use hpccoll, so that a comparison with it means something.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def silent(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for passes whose gradients only add up on this rank."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Wait until all gradients are averaged."""

    def step(self, scaler: torch.amp.GradScaler) -> None:
        """Let the optimizer step, unless gradients overflowed on any rank (a mean with an infinity is infinite)."""
        scaler.unscale_(self.optimizer)
        scaler.step(self.optimizer)

    def close(self) -> None:
        """Free what the constructor made."""


class Optimizer(Averaging):
    """hpccoll's DistributedOptimizer, as in Horovod. It counts the passes itself."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, passes: int, halves: bool) -> None:
        self.model = model
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=hvd.Compression.fp16 if halves else hvd.Compression.none,
            backward_passes_per_step=passes,
        )

    def finish(self) -> None:
        self.optimizer.synchronize()

    def step(self, scaler: torch.amp.GradScaler) -> None:
        scaler.unscale_(self.optimizer)
        with self.optimizer.skip_synchronize():
            scaler.step(self.optimizer)


class Ddp(Averaging):
    """PyTorch's DistributedDataParallel over a backend: gloo or hpccoll. Its backward pass waits for the average."""

    def __init__(self, backend: str, model: nn.Module, optimizer: torch.optim.Optimizer, halves: bool) -> None:
        if backend == "hpccoll":
            import hpccoll.torch  # noqa: F401  (registers the name)

            distributed.init_process_group("hpccoll")
        else:
            distributed.init_process_group(backend, **_rendezvous())
        self.ddp = DistributedDataParallel(model)
        super().__init__(self.ddp, optimizer)
        if halves:
            self.ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)

    def silent(self) -> contextlib.AbstractContextManager[None]:
        return self.ddp.no_sync()

    def close(self) -> None:
        distributed.destroy_process_group()


def _rendezvous() -> dict[str, object]:
    """Return the rendezvous of other backends' ranks: a store that rank 0 serves, and whose address hpccoll sends."""
    store = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False) if hvd.rank() == 0 else None
    host, port = hvd.broadcast_object((socket.gethostname(), store.port) if store else None, 0)
    store = store or distributed.TCPStore(host, port, is_master=False)
    return {"store": store, "rank": hvd.rank(), "world_size": hvd.size()}


def make(way: str, alone: Averaging, passes: int, halves: bool) -> Averaging:
    """Choose how gradients are averaged.

    :param way: "optimizer", "ddp" (over hpccoll) or "ddp-gloo"
    :param halves: gradients travel as float16
    """
    if way == "optimizer":
        return Optimizer(alone.model, alone.optimizer, passes, halves)
    return Ddp({"ddp": "hpccoll", "ddp-gloo": "gloo"}[way], alone.model, alone.optimizer, halves)


WAYS = ("optimizer", "ddp", "ddp-gloo")
