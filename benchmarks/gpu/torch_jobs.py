# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with PyTorch on the GPU in every way that hpccoll offers, and measures its calls beside others'.

    hpccoll run -np 2 python benchmarks/gpu/torch_jobs.py train     weights beside those of one process
    hpccoll run -np 2 python benchmarks/gpu/torch_jobs.py peers     seconds of allreduces and DDP's steps, per backend

Ranks may share a GPU. NCCL is measured where it accepts the ranks: with one rank, or a GPU for each.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import hpccoll
import hpccoll.torch as hvd
from hpccoll.torch import ddp_hook

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shapes import resnet50

DEVICE = os.environ.get("BENCHMARK_DEVICE", "cuda")
STEPS = 4
SIZES = (8, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Bytes of an allreduce."""


# ---- training ----------------------------------------------------------------------------------------


def model_of(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).to(
        DEVICE, dtype
    )


def batch(rank: int, step: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(32, 64, generator=generator).to(DEVICE, dtype)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, dtype: torch.dtype = torch.float32) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(rank, step, dtype)).square().mean().backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def alone(size: int) -> nn.Module:
    """Return the model after the same steps of one process in float64, with the mean gradient of all ranks."""
    model = model_of(torch.float64)
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(size):
            (model(batch(rank, step, torch.float64)).square().mean() / size).backward()
        optimizer.step()
    return model


def by_optimizer(rank: int, size: int, compression: object = hvd.Compression.none) -> nn.Module:
    model = model_of()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    train(model, hvd.DistributedOptimizer(sgd(model), model.named_parameters(), compression=compression), rank)
    return model


def by_ddp(rank: int, size: int) -> nn.Module:
    model = DistributedDataParallel(model_of(), bucket_cap_mb=0.1)
    train(model, sgd(model), rank)
    own: nn.Module = model.module
    return own


def by_hook(rank: int, size: int) -> nn.Module:
    """DDP over another backend's group, whose hook reduces by hpccoll."""
    group = dist.new_group(backend="gloo")
    model = DistributedDataParallel(model_of(), bucket_cap_mb=0.1, process_group=group)
    model.register_comm_hook(ddp_hook.State(compression=None), ddp_hook.allreduce_hook)
    train(model, sgd(model), rank)
    own: nn.Module = model.module
    return own


def by_fsdp2(rank: int, size: int) -> nn.Module:
    model, mesh = model_of(), init_device_mesh(DEVICE, (size,))
    for layer in (*model, model):
        fsdp.fully_shard(layer, mesh=mesh)
    train(model, sgd(model), rank)
    whole = model_of()
    values = {name: p.full_tensor() for name, p in model.named_parameters()}
    whole.load_state_dict(values)
    return whole


def by_fp16(rank: int, size: int) -> nn.Module:
    return by_optimizer(rank, size, hvd.Compression.fp16)


WAYS: dict[str, tuple[Callable[[int, int], nn.Module], float]] = {
    "optimizer": (by_optimizer, 1e-5),
    "optimizer, fp16": (by_fp16, 3e-3),
    "DDP": (by_ddp, 1e-5),
    "DDP, hook": (by_hook, 1e-5),
    "FSDP2": (by_fsdp2, 1e-5),
}


def run_trainings() -> int:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.backends.cuda.matmul.allow_tf32 = False
    wanted, failed = [p.detach().float() for p in alone(size).parameters()], 0
    for way, (train_so, tolerance) in WAYS.items():
        try:
            got = [p.detach() for p in train_so(rank, size).parameters()]
            error = max(float((g - w).norm() / w.norm()) for g, w in zip(got, wanted, strict=True))
            good, said = error <= tolerance, f"error {error:.2e}, at most {tolerance:g}"
        except Exception as e:  # noqa: BLE001 - the other ways are tried, too
            good, said = False, f"{type(e).__name__}: {e}"
        failed += not good
        if rank == 0 or not good:
            print(f"{'good' if good else 'WRONG'}: {way}, rank {rank} of {size}: {said}", flush=True)
        dist.barrier()
    return failed


# ---- beside others -----------------------------------------------------------------------------------


def wait_for_device() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def seconds_of(call: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each call to the end of its work on the device, sorted."""
    samples = []
    for _ in range(repeats + 3):
        wait_for_device()
        began = time.perf_counter()
        call()
        wait_for_device()
        samples.append(time.perf_counter() - began)
    return sorted(samples[3:])


def share_a_gpu() -> bool:
    own = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    every = hpccoll.allgather_object(own)
    return len(set(every)) < len(every)


def backends() -> dict[str, dist.ProcessGroup | None]:
    """Return a group of all ranks per backend; NCCL refuses ranks that share a GPU."""
    groups: dict[str, dist.ProcessGroup | None] = {"hpccoll": None, "gloo": dist.new_group(backend="gloo")}
    if DEVICE == "cuda" and not share_a_gpu():
        groups["nccl"] = dist.new_group(backend="nccl")
    return groups


def reduce_ones(x: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    dist.all_reduce(x.fill_(1), group=group)


def report(**line: object) -> None:
    if dist.get_rank() == 0:
        print(
            json.dumps(line | {"ranks": dist.get_world_size(), "mode": os.environ.get("HPCCOLL_DEVICE_MODE", "auto")}),
            flush=True,
        )


def measure_peers(repeats: int, most: int) -> int:
    groups = backends()
    for nbytes in (n for n in SIZES if n <= most):
        for dtype in (torch.float32, torch.float16):
            x = torch.ones(nbytes // dtype.itemsize, device=DEVICE, dtype=dtype)
            for backend, group in groups.items():
                seconds = seconds_of(partial(reduce_ones, x, group), repeats)
                assert float(x[-1]) == dist.get_world_size()
                report(what="allreduce", backend=backend, bytes=nbytes, dtype=str(dtype)[6:], seconds=seconds)
    for backend, group in groups.items():
        seconds = seconds_of(step_of(group), repeats)
        report(what="DDP's step", backend=backend, bytes=0, dtype="float32", seconds=seconds)
    return 0


class Many(nn.Module):
    """A parameter in the shape of each of ResNet-50's, and a loss whose gradient costs little."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ParameterList([nn.Parameter(torch.ones(shape, device=DEVICE)) for _, shape in resnet50()])

    def forward(self) -> torch.Tensor:
        return torch.stack([p.sum() for p in self.all]).sum()


def step_of(group: dist.ProcessGroup | None) -> Callable[[], None]:
    model = DistributedDataParallel(Many(), process_group=group)

    def step() -> None:
        model.zero_grad(set_to_none=False)
        model().backward()

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "peers"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--mebibytes", type=int, default=256, help="of the largest allreduce")
    options = parser.parse_args()
    hvd.init()
    if DEVICE == "cuda":
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    dist.init_process_group("hpccoll")
    failed = run_trainings() if options.what == "train" else measure_peers(options.repeats, options.mebibytes << 20)
    dist.destroy_process_group()
    hpccoll.shutdown()
    return failed


if __name__ == "__main__":
    sys.exit(main())
