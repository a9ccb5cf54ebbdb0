# SPDX-License-Identifier: Apache-2.0
"""What people train with (DDP, FSDP2, DTensor, ZeroRedundancyOptimizer) gives what one process gives."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import hpccoll
from hpccoll.torch import ddp_hook

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.usefixtures("group"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

STEPS = 4
SMALL_BUCKETS = 0.0005
"""MB: several buckets for a small model, so that some are reduced while backward still runs."""


class Model(nn.Module):
    """Three layers, of which the middle one can be left out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.middle, self.last = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, skips: bool = False) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.last(x if skips else torch.relu(self.middle(x)))


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + rank))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    skips: Callable[[int], bool] = lambda step: False,
) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        options = {"skips": True} if skips(step) else {}
        model(batch(rank, step), **options).square().mean().backward()
        optimizer.step()


def train_alone(size: int, skips: Callable[[int, int], bool] = lambda rank, step: False) -> Model:
    """The same model after the same steps, by one process with the mean gradient of all ranks."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(size):
            loss = model(batch(rank, step), skips=skips(rank, step)).square().mean() / size
            loss.backward()
        optimizer.step()
    return model


def assert_same(model: nn.Module, other: nn.Module, tolerance: float = 1e-5) -> None:
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def train_ddp(hook: Any = None, **options: Any) -> Model:
    model = DistributedDataParallel(Model(), bucket_cap_mb=SMALL_BUCKETS, **options)
    if hook is not None:
        model.register_comm_hook(*hook)
    train(model, torch.optim.Adam(model.parameters(), 0.01), dist.get_rank())
    own: Model = model.module
    return own


@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}], ids=str)
def test_ddp(options: dict[str, bool]) -> None:
    assert_same(train_ddp(**options), train_alone(dist.get_world_size()))


def test_ddp_finds_unused_parameters() -> None:
    """Each rank in another step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(Model(), bucket_cap_mb=SMALL_BUCKETS, find_unused_parameters=True)
    train(model, torch.optim.Adam(model.parameters(), 0.01), rank, lambda step: step % size == rank)
    assert_same(model.module, train_alone(size, lambda rank, step: step % size == rank))


def test_ddp_without_synchronization() -> None:
    """Gradients of two batches, reduced once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model, alone = DistributedDataParallel(Model()), Model()
    with model.no_sync():
        model(batch(rank, 0)).sum().backward()
    model(batch(rank, 1)).sum().backward()
    for r in range(size):
        ((alone(batch(r, 0)).sum() + alone(batch(r, 1)).sum()) / size).backward()
    for one, two in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("initial", [True, False])
def test_ddp_joins_uneven_inputs(initial: bool) -> None:
    """The sum of the gradients is divided by the ranks of the job, or by those that still have a batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model, alone = DistributedDataParallel(Model(), bucket_cap_mb=SMALL_BUCKETS), Model()
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, alone)]
    with model.join(divide_by_initial_world_size=initial):
        for step in range(2 + rank):
            optimizers[0].zero_grad()
            model(batch(rank, step)).square().mean().backward()
            optimizers[0].step()
    for step in range(1 + size):
        optimizers[1].zero_grad()
        having = [r for r in range(size) if step < 2 + r]
        for r in having:
            (alone(batch(r, step)).square().mean() / (size if initial else len(having))).backward()
        optimizers[1].step()
    assert_same(model.module, alone)


@pytest.mark.parametrize("name", ["allreduce_hook", "fp16_compress_hook"])
def test_comm_hooks(name: str) -> None:
    tolerance = {"allreduce_hook": 1e-5, "fp16_compress_hook": 5e-3}[name]
    hook = (dist.group.WORLD, getattr(default_hooks, name))
    assert_same(train_ddp(hook), train_alone(dist.get_world_size()), tolerance)


def test_power_sgd() -> None:
    """Its callbacks wait for allreduces of their own; the ranks agree, and the first steps are exact."""
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model = train_ddp((state, powerSGD_hook.powerSGD_hook))
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    assert all(torch.equal(one, mine) for one in every)


def test_fully_shard() -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
        return  # it was not there, or did not work on the host
    from torch.distributed import fsdp

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Model()
    for layer in (model.first, model.middle, model.last, model):
        fsdp.fully_shard(layer, mesh=mesh)
    train(model, torch.optim.Adam(model.parameters(), 0.01), dist.get_rank())
    whole = {name: p.full_tensor() for name, p in model.named_parameters()}
    for name, parameter in train_alone(dist.get_world_size()).named_parameters():
        torch.testing.assert_close(whole[name], parameter, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:DTensor random operators")  # of torch 2.6
def test_dtensor() -> None:
    tensor = pytest.importorskip("torch.distributed.tensor")
    if not hasattr(tensor, "distribute_tensor"):  # torch 2.4
        tensor = pytest.importorskip("torch.distributed._tensor")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(5)
    a, b = torch.randn(8, 12), torch.randn(12, 4)
    rows = tensor.distribute_tensor(a, mesh, [tensor.Shard(0)])
    inner = tensor.distribute_tensor(a, mesh, [tensor.Shard(1)])
    weight = tensor.distribute_tensor(b, mesh, [tensor.Shard(0)])
    torch.testing.assert_close((inner @ weight).full_tensor(), a @ b)
    torch.testing.assert_close(rows.redistribute(mesh, [tensor.Shard(1)]).full_tensor(), a)
    torch.testing.assert_close(rows.redistribute(mesh, [tensor.Replicate()]).to_local(), a)
    torch.testing.assert_close((inner @ weight).redistribute(mesh, [tensor.Shard(0)]).full_tensor(), a @ b)


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("shard_buckets", [False, True])
def test_zero_redundancy_optimizer_in_the_hook(shard_buckets: bool) -> None:
    """torch says that its first two steps update nothing: it learns the buckets."""
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, alone = DistributedDataParallel(Model(), bucket_cap_mb=SMALL_BUCKETS), Model()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, overlap_with_ddp=True)
    hook = hook_with_zero_step(default_hooks.allreduce_hook, model, optimizer, shard_buckets=shard_buckets)
    model.register_comm_hook(None, hook)
    expected = torch.optim.SGD(alone.parameters(), 0.1)
    for step in range(STEPS):
        model.zero_grad()
        model(batch(dist.get_rank(), step)).square().mean().backward()
        if step >= 2:
            expected.zero_grad()
            for rank in range(dist.get_world_size()):
                (alone(batch(rank, step)).square().mean() / dist.get_world_size()).backward()
            expected.step()
    assert_same(model.module, alone)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_zero_redundancy_optimizer() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(Model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer, dist.get_rank())
    assert_same(model.module, train_alone(dist.get_world_size()))
    optimizer.consolidate_state_dict(0)


def test_batch_norm_of_all_ranks_on_the_host() -> None:
    """DDP gives the buffers of rank 0 to all."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
    for step in range(3):
        model(batch(dist.get_rank(), step)).sum().backward()
    model(batch(0, 5))  # all ranks, the same data: buffers were synchronized before
    mean = model.module[1].running_mean
    every = [torch.empty_like(mean) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mean)
    assert all(torch.equal(one, mean) for one in every)


@pytest.fixture
def world() -> Iterator[hpccoll.World]:
    yield hpccoll.init(verbose=0)
    hpccoll.shutdown()


@pytest.mark.parametrize("compression", [None, hpccoll.compression.FP16, hpccoll.compression.BF16], ids=str)
def test_the_hook_for_other_backends(world: hpccoll.World, compression: Any) -> None:
    tolerance = {"None": 1e-5, "float16": 5e-3, "bfloat16": 3e-2}[str(compression)]
    model = train_ddp((ddp_hook.State(compression=compression), ddp_hook.allreduce_hook))
    assert_same(model, train_alone(dist.get_world_size()), tolerance)


@pytest.mark.usefixtures("world")
def test_the_hook_of_several_models_in_one_backward_pass() -> None:
    """Their buckets are equal."""
    models = [DistributedDataParallel(Model()) for _ in range(6)]
    for model in models:
        model.register_comm_hook(None, ddp_hook.allreduce_hook)
    for _ in range(2):
        for model in models:
            model.zero_grad()
        x = batch(dist.get_rank(), 0)
        losses = [model(x).square().mean() * factor for factor, model in enumerate(models, 1)]
        torch.stack(losses).sum().backward()
    first = models[0].module.first.weight.grad
    for factor, model in enumerate(models, 1):
        torch.testing.assert_close(model.module.first.weight.grad, factor * first)


def test_functional_collectives() -> None:
    """What compiled programs and DTensor call, from C++."""
    functional = torch.distributed._functional_collectives
    size, rank = dist.get_world_size(), dist.get_rank()
    whole = dist.group.WORLD
    x = torch.full((size, 2), float(rank))
    calls = [
        (partial(functional.all_reduce, x, "sum", whole), torch.full((size, 2), float(sum(range(size))))),
        (
            partial(functional.all_gather_tensor, x[:1], 0, whole),
            torch.arange(float(size)).view(-1, 1).expand(size, 2),
        ),
        (
            partial(functional.reduce_scatter_tensor, x, "sum", 0, whole),
            torch.full((1, 2), float(sum(range(size)))),
        ),
        (partial(functional.broadcast, x, 0, whole), torch.zeros(size, 2)),
        (
            partial(functional.all_to_all_single, x, None, None, whole),
            torch.arange(float(size)).view(-1, 1).expand(size, 2),
        ),
    ]
    for call, expected in calls:
        assert torch.equal(functional.wait_tensor(call()), expected), call
