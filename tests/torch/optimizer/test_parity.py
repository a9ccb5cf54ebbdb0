# SPDX-License-Identifier: Apache-2.0
"""After 20 steps from the same seed DistributedOptimizer and torch's DistributedDataParallel have the same weights."""

import datetime
import socket
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hpccoll.torch as hvd

pytestmark = pytest.mark.mpi(min_size=2)

STEPS = 20
FP16 = 2e-3
"""Gradients of fp16 have 11 bits: how far weights of about 1 may drift apart in 20 steps of 0.1 times a gradient."""


@pytest.fixture(scope="module")
def gloo() -> Iterator[None]:
    """A torch process group of the job's ranks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = MPI.COMM_WORLD.bcast(free.getsockname()[1])
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=MPI.COMM_WORLD.rank, world_size=MPI.COMM_WORLD.size,
        timeout=datetime.timedelta(seconds=60),
    )  # fmt: skip
    yield
    dist.destroy_process_group()


def weights_by_ddp(both, fp16):
    """The weights that the network of `both` would have after STEPS steps of DDP over Gloo."""
    network = both.network()
    network.load_state_dict(both.model.state_dict())
    model = DistributedDataParallel(network)
    if fp16:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = both.make(network.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = both.mine(*both.batch(step))
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return network.state_dict()


@pytest.mark.parametrize(
    "options",
    [{}, {"groups": 2}, {"compression": hvd.Compression.fp16}],
    ids=["fp32", "fp32 in groups", "fp16"],
)
def test_same_weights_as_gloo_ddp(pair, gloo, options):
    both = pair(options=options)
    fp16 = "compression" in options
    expected = weights_by_ddp(both, fp16)
    both.train(STEPS)
    close = {"rtol": 0, "atol": FP16} if fp16 else {"rtol": 1e-5, "atol": 1e-6}
    for name, value in both.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], **close)
    both.assert_equal(**close)
