# SPDX-License-Identifier: Apache-2.0
"""After 20 steps from the same seed DistributedOptimizer and torch's DistributedDataParallel have the same weights."""

import datetime
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hpccoll
import hpccoll.torch
import hpccoll.torch as hvd

pytestmark = pytest.mark.mpi(min_size=2)

STEPS = 20
FP16 = 2e-3
"""How far weights may drift apart in 20 steps: gradients have 11 bits, and a ReLU that flips multiplies the rest."""


@pytest.fixture(scope="module")
def gloo() -> Iterator[dist.ProcessGroup]:
    """A torch process group of the job's ranks."""
    comm, limit = MPI.COMM_WORLD, datetime.timedelta(seconds=60)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=limit)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def groups(gloo: dist.ProcessGroup, world: hpccoll.World) -> Iterator[dict[str, dist.ProcessGroup]]:
    """Torch process groups of the job's ranks, hpccoll's with the nodes of `world`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCCOLL_NODES", world.base.settings.nodes)
        patch.setenv("HPCCOLL_VERBOSE", "0")
        ours = dist.new_group(backend="hpccoll")
    yield {"gloo": gloo, "hpccoll": ours}
    dist.destroy_process_group(ours)


def weights_by_ddp(both, group, fp16):
    """The weights that the network of `both` would have after STEPS steps of DDP."""
    network = both.network()
    network.load_state_dict(both.model.state_dict())
    model = DistributedDataParallel(network, process_group=group)
    if fp16:
        model.register_comm_hook(group, default_hooks.fp16_compress_hook)
    optimizer = both.make(network.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = both.mine(*both.batch(step))
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return network.state_dict()


CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("options", [{}, {"groups": 2}], ids=["each", "in groups"])
@pytest.mark.parametrize("backend", ["gloo", "hpccoll"])
def test_same_weights_as_ddp(pair, groups, backend, options):
    both = pair(options=options)
    expected = weights_by_ddp(both, groups[backend], fp16=False)
    both.train(STEPS)
    for name, value in both.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], **CLOSE)
    both.assert_equal(**CLOSE)


@pytest.mark.parametrize("backend", ["gloo", "hpccoll"])
def test_same_weights_as_ddp_with_fp16(pair, groups, backend):
    both = pair(
        options={"compression": hvd.Compression.fp16},
        make=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    expected = weights_by_ddp(both, groups[backend], fp16=True)
    both.train(STEPS)
    for name, value in both.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=FP16)
    both.assert_equal(rtol=0, atol=FP16)
