# SPDX-License-Identifier: Apache-2.0
"""Ways to train one network on all ranks, with one interface: hpccoll's optimizer, DDP and FSDP over it, DDP over Gloo.

Each has the checkpoint of its kind: `hpccoll.io` writes arrays of which every rank has a part, and PyTorch's
distributed checkpoint (DCP) writes what DDP and FSDP have.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from network import Gpt
from torch import distributed, nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import hpccoll
import hpccoll.io
import hpccoll.torch as hvd
from hpccoll.torch import ddp_hook

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW keeps of each weight."""


class Alone:
    """One process, whose gradients are the mean already. It does not use hpccoll: the other ways are compared with it.

    :param bfloat16: gradients travel as bfloat16
    """

    def __init__(self, network: Gpt, passes: int, bfloat16: bool) -> None:
        self.network, self.passes, self.bfloat16 = network, passes, bfloat16
        self.model: nn.Module = self.wrapped()
        self.optimizer = self.made(torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95), weight_decay=0.1))

    def wrapped(self) -> nn.Module:
        """Return the module that the program calls."""
        return self.network

    def made(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the optimizer that the program calls."""
        return optimizer

    def accumulating(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Return the context of a pass; the gradients of all but the last pass of a step only add up on this rank."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """Wait until all gradients are averaged."""

    def step(self, rate: float) -> None:
        """Update the weights; gradients of a norm above 1 are shortened to that."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, path: Path, step: int, losses: np.ndarray) -> None:
        """Write a checkpoint; all ranks call this together.

        :param losses: the same on all ranks
        """
        raise NotImplementedError

    def load(self, path: Path) -> tuple[int, np.ndarray]:
        """Read a checkpoint; return its step and losses. All ranks, of any number, call this together."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the constructor made."""


class Optimizer(Alone):
    """hpccoll's DistributedOptimizer, as in Horovod: it starts to average while the backward pass goes on."""

    def made(self, optimizer: torch.optim.Optimizer) -> Any:
        hvd.broadcast_parameters(self.network.state_dict(), root_rank=0)
        return hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.network.named_parameters(),
            compression=hvd.Compression.bf16 if self.bfloat16 else hvd.Compression.none,
            backward_passes_per_step=self.passes,
        )

    def finish(self) -> None:
        self.optimizer.synchronize()

    def step(self, rate: float) -> None:
        with self.optimizer.skip_synchronize():
            super().step(rate)

    def save(self, path: Path, step: int, losses: np.ndarray) -> None:
        weights = list(self.network.parameters())
        tensors = {"weights": weights} | {name: [self.optimizer.state[w][name] for w in weights] for name in MOMENTS}
        whole = {name: nn.utils.parameters_to_vector(parts).detach().numpy() for name, parts in tensors.items()}
        whole["losses"] = losses
        mine = {name: np.array_split(array, hvd.size())[hvd.rank()] for name, array in whole.items()}  # all are equal
        hpccoll.io.save(path, mine, attrs={"step": step})

    def load(self, path: Path) -> tuple[int, np.ndarray]:
        weights = list(self.network.parameters())
        count, step = sum(w.numel() for w in weights), int(hpccoll.io.attributes(path)["step"])
        shapes = {"weights": count, **dict.fromkeys(MOMENTS, count)}
        whole = {
            name: torch.from_numpy(hpccoll.io.load(path, name, offset=(0,), shape=(length,)))
            for name, length in shapes.items()
        }
        nn.utils.vector_to_parameters(whole["weights"], weights)
        parts = {name: whole[name].split([w.numel() for w in weights]) for name in MOMENTS}
        for number, weight in enumerate(weights):
            moments = {name: parts[name][number].view_as(weight).clone() for name in MOMENTS}
            self.optimizer.state[weight] = {"step": torch.tensor(float(step))} | moments
        return step, hpccoll.io.load(path, "losses", offset=(0,), shape=(step,))


class Ddp(Alone):
    """PyTorch's DistributedDataParallel over hpccoll."""

    backend = "hpccoll"

    def wrapped(self) -> nn.Module:
        distributed.init_process_group(self.backend)
        return self.parallel()

    def parallel(self) -> Any:
        model = DistributedDataParallel(self.network)
        if self.bfloat16:
            self.compress(model)
        return model

    def compress(self, model: Any) -> None:
        """Let gradients travel as bfloat16."""
        model.register_comm_hook(ddp_hook.State(compression=hpccoll.compression.BF16), ddp_hook.allreduce_hook)

    def accumulating(self, last: bool) -> contextlib.AbstractContextManager[None]:
        context: contextlib.AbstractContextManager[None] = contextlib.nullcontext() if last else self.model.no_sync()
        return context

    def save(self, path: Path, step: int, losses: np.ndarray) -> None:
        dcp.save(self.state() | {"step": step, "losses": losses.tolist()}, checkpoint_id=path)

    def load(self, path: Path) -> tuple[int, np.ndarray]:
        state = self.state() | {"step": 0, "losses": list[float]()}
        dcp.load(state, checkpoint_id=path)
        states.set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        return state["step"], np.array(state["losses"])

    def state(self) -> dict[str, Any]:
        model, optimizer = states.get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def close(self) -> None:
        distributed.destroy_process_group()


class DdpGloo(Ddp):
    """The same over Gloo, which does not know bfloat16."""

    backend = "gloo"

    def compress(self, model: Any) -> None:
        raise SystemExit("Gloo does not average bfloat16: --wire fp32")


class Fsdp(Ddp):
    """PyTorch's FSDP2 over hpccoll: each rank keeps a part of the weights, gradients and moments."""

    def parallel(self) -> Any:
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if self.bfloat16 else torch.float32)
        for block in self.network.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        return fully_shard(self.network, mesh=mesh, mp_policy=policy)

    def accumulating(self, last: bool) -> contextlib.AbstractContextManager[None]:
        self.network.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


WAYS: dict[str, type[Alone]] = {"optimizer": Optimizer, "ddp": Ddp, "fsdp": Fsdp, "ddp-gloo": DdpGloo}
