# SPDX-License-Identifier: Apache-2.0
"""The state of a training, from one rank to all."""

import sys
import threading

import pytest
import torch

import hpccoll
import hpccoll.torch as hvd

pytestmark = [pytest.mark.mpi(min_size=1), pytest.mark.usefixtures("job")]

ROOT = 0


def model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def differs() -> bool:
    return hvd.size() > 1 and hvd.rank() != ROOT


@pytest.mark.parametrize(
    "given",
    [
        lambda m: m.state_dict(),
        lambda m: list(m.named_parameters()),
        lambda m: m.named_parameters(),
        lambda m: m.parameters(),
    ],
    ids=["state_dict", "list of named", "named", "unnamed"],
)
def test_broadcast_parameters(given):
    own, roots = model(seed=hvd.rank()), model(seed=ROOT)
    before = own[0].weight.data_ptr()
    hvd.broadcast_parameters(given(own), root_rank=ROOT)
    assert all(torch.equal(*pair) for pair in zip(own.parameters(), roots.parameters(), strict=True))
    assert own[0].weight.data_ptr() == before


def trained(optimizer: type, steps: int, **options: object) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    own = model(seed=7)
    made = optimizer(own.parameters(), **options)
    for _ in range(steps):
        made.zero_grad()
        own(torch.ones(5, 3)).square().sum().backward()
        made.step(lambda: own(torch.ones(5, 3)).square().sum())
    return own, made


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "stateless": (torch.optim.SGD, {"lr": 0.1}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.9)}),
    "AdamW, lr tensor": (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
    "LBFGS": (torch.optim.LBFGS, {"lr": 0.1}),
}


@pytest.mark.parametrize("which", OPTIMIZERS)
def test_broadcast_optimizer_state(which):
    """The root has trained three steps, the others none, with other options."""
    kind, options = OPTIMIZERS[which]
    _, roots = trained(kind, 3, **options)
    own, mine = trained(kind, 0, **{**options, "lr": 0.5}) if differs() else (None, roots)
    weights = [p.clone() for p in own.parameters()] if own else []
    hvd.broadcast_optimizer_state(mine, root_rank=ROOT)
    torch.testing.assert_close(mine.state_dict(), roots.state_dict())
    assert not own or all(torch.equal(*pair) for pair in zip(weights, own.parameters(), strict=True))


def test_other_groups_of_parameters_are_an_error_on_all_ranks():
    own = model(seed=7)
    split = list(own.parameters())
    mine = [{"params": split[:2]}, {"params": split[2:]}] if differs() else [{"params": split}]
    optimizer = torch.optim.SGD(mine, lr=0.1)
    if hvd.size() == 1:
        hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)
        return
    with pytest.raises(hpccoll.MismatchError, match="0 is a group of 6 parameters on rank 0 and a group of 2 param"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)


def test_objects():
    def local() -> int:
        return 5

    sent = {"epoch": 3, "function": local} if hvd.rank() == hvd.size() - 1 else None
    got = hvd.broadcast_object(sent, root_rank=hvd.size() - 1)
    assert (got["epoch"], got["function"]()) == (3, 5)
    assert (got is sent) == (hvd.rank() == hvd.size() - 1)
    assert hvd.broadcast_object_fn(0, name="epoch")(hvd.rank()) == 0
    assert hvd.allgather_object("x" * hvd.rank(), name="words") == ["x" * r for r in range(hvd.size())]


def test_what_pickle_refuses_is_refused_on_all_ranks():
    """Only the last rank can see it; nobody waits for it, and the job goes on."""
    last = hvd.size() - 1
    mine = threading.Lock() if hvd.rank() == last else "sound"
    _, optimizer = trained(torch.optim.SGD, 0, lr=0.1)
    if hvd.rank() == last:
        optimizer.param_groups[0]["guard"] = mine
    for kind, call in (
        ("lock", lambda: hvd.allgather_object(mine)),
        ("lock", lambda: hvd.broadcast_object(mine, last, name="mine")),
        ("SGD", lambda: hvd.broadcast_optimizer_state(optimizer, last)),
    ):
        with pytest.raises(
            RuntimeError, match=f"rank {last} has a {kind} that pickle refuses: cannot pickle '_thread.lock'"
        ) as caught:
            call()
        assert isinstance(caught.value, hpccoll.ObjectError)
        assert len(set(hvd.allgather_object(str(caught.value)))) == 1


def test_a_function_without_cloudpickle(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(RuntimeError, match=r"rank 0 has a function that .*cloudpickle.* is not installed"):
        hvd.broadcast_object(lambda: None)
    assert hvd.broadcast_object(hvd.rank()) == 0
