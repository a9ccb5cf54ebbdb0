# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer as programs for Horovod use it: each argument, and what they read of it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.timeout(60)]


@pytest.fixture(scope="module", autouse=True)
def job() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(100 * rank + step))


def trained(net: torch.nn.Module, optimizer: Any, *, steps: int = 3, passes: int = 1) -> list[torch.Tensor]:
    """The weights after some steps, each with this rank's own batches."""
    for step in range(steps):
        optimizer.zero_grad()
        for one in range(passes):
            net(batch(hvd.rank(), 10 * step + one)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def alone(*, op: Any = hvd.Average, steps: int = 3, passes: int = 1) -> list[torch.Tensor]:
    """The weights that one process computes from the batches of all ranks."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        each = []
        for rank in range(hvd.size()):
            optimizer.zero_grad()
            for one in range(passes):
                net(batch(rank, 10 * step + one)).square().mean().backward()
            each.append([p.grad for p in net.parameters()])
        for p, *gradients in zip(net.parameters(), *each, strict=True):
            together = torch.stack(gradients)
            p.grad = {
                hvd.Average: lambda x: x.mean(0), hvd.Sum: lambda x: x.sum(0), hvd.Min: lambda x: x.amin(0),
                hvd.Max: lambda x: x.amax(0), hvd.Product: lambda x: x.prod(0),
            }[op](together)  # fmt: skip
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def groups_of(net: torch.nn.Module) -> list[list[torch.Tensor]]:
    return [list(layer.parameters()) for layer in net]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"op": hvd.Sum},
        {"op": hvd.Min},
        {"op": hvd.Max},
        {"op": hvd.Product},
        {"gradient_predivide_factor": 2.0},
        {"groups": 1},
        {"groups": 2},
        {"groups": "layers"},
        {"backward_passes_per_step": 3},
        {"backward_passes_per_step": 2, "groups": 2},
        {"sparse_as_dense": True},
        {"compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.bf16},
        {"process_set": hvd.global_process_set},
    ],
    ids=str,
)
def test_each_argument_gives_what_one_process_computes(options: dict[str, Any]) -> None:
    net, passes = model(), options.get("backward_passes_per_step", 1)
    chosen = options | ({"groups": groups_of(net)} if options.get("groups") == "layers" else {})
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, net.named_parameters() if len(options) < 2 else None, **chosen)
    got = trained(net, optimizer, passes=passes)
    exact = options.get("compression") is None or hvd.size() == 1
    torch.testing.assert_close(
        got, alone(op=options.get("op", hvd.Average), passes=passes), atol=1e-5 if exact else 2e-2, rtol=1e-4
    )


def test_num_groups_is_the_old_name_of_groups() -> None:
    net = model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with pytest.warns(DeprecationWarning, match="groups"):
        optimizer = hvd.DistributedOptimizer(sgd, net.named_parameters(), num_groups=2)
    torch.testing.assert_close(trained(net, optimizer), alone())


def test_a_process_set_reduces_alone() -> None:
    """The ranks of even number together; the others each for itself."""
    evens = hvd.add_process_set(range(0, hvd.size(), 2)) if hvd.size() > 1 else hvd.global_process_set
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)], process_set=evens)
    (weight.sum() * hvd.rank()).backward()
    optimizer.step()
    members = evens.ranks or [0]
    want = sum(members) / len(members) if evens.included() else hvd.rank()
    assert weight.tolist() == [-want, -want]
    if hvd.size() > 1:
        hvd.remove_process_set(evens)


# ---- what programs read -----------------------------------------------------------------------------------


def test_names_of_the_parameters() -> None:
    net = model()
    by_name = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    assert by_name._parameter_names == {p: name for name, p in net.named_parameters()}
    net = model()
    by_place = torch.optim.SGD([{"params": net[0].parameters()}, {"params": net[1].parameters()}], lr=0.1)
    names = hvd.DistributedOptimizer(by_place)._parameter_names
    assert set(names.values()) == {f"allreduce.noname.{i}.{j}" for i in (0, 1) for j in (0, 1)}
    assert all(one == set(names.values()) for one in hvd.allgather_object(set(names.values())))


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=str)
def test_attributes(op: Any) -> None:
    if op is hvd.Adasum and hvd.size() & (hvd.size() - 1):
        return  # a program with Adasum does not run on three ranks
    net = model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), compression=hvd.Compression.fp16, op=op
    )
    assert optimizer._compression is hvd.Compression.fp16
    assert optimizer.op == op
    assert optimizer.gradient_predivide_factor == 1.0
    assert optimizer.sparse_as_dense is False
    assert optimizer.process_set is hvd.global_process_set
    assert optimizer.backward_passes_per_step == 1
    assert optimizer._requires_update == set(net.parameters())
    assert optimizer._allreduce_delay == dict.fromkeys(net.parameters(), 1)
    assert optimizer._handles == {}
    assert optimizer.__module__ == hvd.DistributedOptimizer.__module__  # so Horovod itself tells a wrapped optimizer
    optimizer.backward_passes_per_step = 2
    assert optimizer._allreduce_delay == dict.fromkeys(net.parameters(), 2)
    optimizer._requires_update = set()


@pytest.mark.mpi(min_size=2)
def test_handles_are_those_in_flight() -> None:
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    net(batch(0, 0)).sum().backward()
    assert optimizer._handles.keys() == set(net.parameters())
    assert set(optimizer._allreduce_delay.values()) == {0}
    optimizer.synchronize()
    assert optimizer._handles == {}
    with optimizer.skip_synchronize():
        optimizer.step()


def test_without_required_gradients_an_unused_layer_stays_untouched() -> None:
    """Programs assign an empty set to `_requires_update` so that layers without a gradient are left alone."""
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    optimizer._requires_update = set()
    net[0](batch(0, 0)).sum().backward()
    optimizer.step()
    assert net[0].weight.grad is not None
    assert net[1].weight.grad is None


# ---- the state of an optimizer ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SGD", "Adam", "Adagrad"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_broadcast_of_a_fresh_optimizer_leaves_zero_gradients_and_makes_no_step(kind: str, wrapped: bool) -> None:
    net = model()
    net[1].bias.requires_grad_(False)
    rate = 0.1 * (1 + hvd.rank())
    optimizer: Any = {
        "SGD": lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9, weight_decay=0.5),
        "Adam": lambda p: torch.optim.Adam(p, lr=rate, weight_decay=0.5),
        "Adagrad": lambda p: torch.optim.Adagrad(p, lr=rate, weight_decay=0.5),
    }[kind](net.parameters())
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    before = [p.detach().clone() for p in net.parameters()]
    fresh = not optimizer.state_dict()["state"]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    torch.testing.assert_close(list(map(torch.Tensor.detach, net.parameters())), before, rtol=0, atol=0)
    for p in net.parameters():
        if p.requires_grad and fresh:  # Adagrad has its state from the beginning
            assert p.grad is not None
            assert torch.equal(p.grad, torch.zeros_like(p))
        else:
            assert p.grad is None


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")  # PyTorch counts the other one's steps
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["average", "adasum"])
@pytest.mark.parametrize("way", ["broadcast", "broadcast the given one", "load"])
def test_a_scheduler_of_the_given_optimizer_sets_the_rate_after_a_load(way: str, op: Any) -> None:
    """PyTorch's load_state_dict() makes new groups, which the scheduler of another object over the old ones misses."""
    op = hvd.Sum if op is hvd.Adasum and hvd.size().bit_count() > 1 else op  # Adasum is for a power of two of ranks
    net = model()
    given = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(given, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(given, net.named_parameters(), op=op)
    loaded = given if "given" in way else optimizer
    if "broadcast" in way:
        hvd.broadcast_optimizer_state(loaded, root_rank=0)
    else:
        loaded.load_state_dict(loaded.state_dict())
    for step in range(3):
        weights = trained(net, optimizer, steps=1)
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == given.param_groups[0]["lr"] == 0.1 * 0.5 ** (step + 1)
    for mine in weights:
        everybody = hvd.allgather(mine.reshape(1, -1))
        torch.testing.assert_close(everybody, everybody[:1].expand_as(everybody), rtol=1e-6, atol=1e-7)


class WithCopies(torch.optim.Optimizer):
    """SGD of bfloat16 parameters that steps float32 copies, as libraries for mixed precision have."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 2.0**-10})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        del closure
        for p in (p for group in self.param_groups for p in group["params"]):
            state = self.state[p]
            copies = state.setdefault("copies", [p.float()])
            state["steps"] = state.get("steps", torch.zeros(1, dtype=torch.int64)) + 1
            copies[0] -= self.param_groups[0]["lr"] * p.grad.float()
            p.copy_(copies[0])


def test_a_broadcast_state_keeps_its_types() -> None:
    """PyTorch's load_state_dict() casts the state of a parameter to the parameter's type, on all ranks but the root."""
    torch.manual_seed(hvd.rank())
    net = torch.nn.Linear(3, 2).bfloat16()
    optimizer = WithCopies(net.parameters())
    for step in range(3):
        optimizer.zero_grad()
        net(batch(hvd.rank(), step).bfloat16()).sum().backward()
        optimizer.step()
    roots = hvd.broadcast_object([optimizer.state[p]["copies"][0] for p in net.parameters()], root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for p, copy in zip(net.parameters(), roots, strict=True):
        torch.testing.assert_close(optimizer.state[p]["copies"][0], copy, rtol=0, atol=0)  # checks the type, too
        torch.testing.assert_close(optimizer.state[p]["steps"], torch.tensor([3]))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_broadcast_state_keeps_the_order_of_its_dimensions(kind: Any) -> None:
    """Fused optimizers go through a parameter and its state as they lie in memory."""

    def steps(before: int, after: int) -> list[torch.Tensor]:
        torch.manual_seed(1)
        net: Any = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(net.parameters(), lr=0.01, fused=True, **options)
        for step in range(before + after):
            if step == before:
                hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            net(x.to(memory_format=torch.channels_last)).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()]

    torch.testing.assert_close(steps(2, 2), steps(4, 0), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("given", [False, True], ids=["wrapped", "given"])
def test_a_rate_in_a_tensor_of_the_program_is_still_the_rate_after_a_broadcast(given: bool) -> None:
    """PyTorch's load_state_dict() puts another tensor in its place, on all ranks but the root."""
    net, rate = model(), torch.tensor(0.1 * (1 + hvd.rank()))
    plain = torch.optim.Adam([{"params": net[0].parameters()}, {"params": net[1].parameters()}], lr=rate)
    optimizer = hvd.DistributedOptimizer(plain, net.named_parameters())
    hvd.broadcast_optimizer_state(plain if given else optimizer, root_rank=0)
    assert float(rate) == pytest.approx(0.1)
    for step in range(2):
        trained(net, optimizer, steps=1)
        rate.mul_(0.5)
        assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.1 * 0.5 ** (step + 1)] * 2)


def test_different_rates_of_the_root_replace_a_tensor_that_groups_share() -> None:
    net = model()
    rates = [torch.tensor(0.1), torch.tensor(0.2)] if hvd.rank() == 0 else [torch.tensor(0.3)] * 2
    groups = [{"params": layer.parameters(), "lr": rate} for layer, rate in zip(net, rates, strict=True)]
    optimizer = torch.optim.Adam(groups)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.1, 0.2])


def test_sparse_gradients_of_a_fresh_optimizer_are_sparse() -> None:
    table = torch.nn.Embedding(6, 2, sparse=True)
    hvd.broadcast_optimizer_state(torch.optim.SparseAdam(table.parameters()), 0)
    assert table.weight.grad.is_sparse
    table = torch.nn.Embedding(6, 2, sparse=True)
    hvd.broadcast_optimizer_state(torch.optim.SGD(table.parameters(), lr=0.1), 0, model=table)
    assert table.weight.grad.is_sparse


# ---- sparse gradients ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch.optim.Adagrad's own tensors
@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "SparseAdam", "Adagrad"])
def test_sparse_gradients_stay_sparse(kind: str, as_dense: bool) -> None:
    """Each rank looks up a word of its own and one that all share; one process does the same with all words."""

    def words(rank: int, step: int) -> torch.Tensor:
        return torch.tensor([rank % 5, 5, (rank + step) % 6])

    def made() -> tuple[torch.nn.Embedding, torch.optim.Optimizer]:
        torch.manual_seed(3)
        table = torch.nn.Embedding(7, 2, sparse=True)
        return table, getattr(torch.optim, kind)(table.parameters(), lr=0.1)

    table, inner = made()
    optimizer = hvd.DistributedOptimizer(inner, table.named_parameters(), sparse_as_dense=as_dense)
    single, reference = made()
    for step in range(3):
        optimizer.zero_grad()
        (table(words(hvd.rank(), step)) ** 2).sum().backward()
        optimizer.synchronize()
        assert table.weight.grad.is_sparse
        assert table.weight.grad.sparse_dim() == 1
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.zero_grad()
        all_words = torch.cat([words(rank, step) for rank in range(hvd.size())])
        ((single(all_words) ** 2).sum() / hvd.size()).backward()
        reference.step()
        torch.testing.assert_close(table.weight, single.weight)
