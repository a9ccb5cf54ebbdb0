# SPDX-License-Identifier: Apache-2.0
"""The state of a training, from one rank to all."""

import re
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


OTHERS = {
    "another name": (
        lambda last: {"a": torch.ones(2), ("b" if last else "c"): torch.ones(3)},
        "parameter 'b' is missing on OTHERS and float32[3] on LAST; parameter 'c' is float32[3] on OTHERS and missing",
    ),
    "one more": (
        lambda last: [torch.ones(2)] * (1 + last),
        "parameter 1 is missing on OTHERS and float32[2] on LAST; all ranks",
    ),
    "another shape": (
        lambda last: {"w": torch.ones(2, 2 + last)},
        "parameter 'w' is float32[2, 2] on OTHERS and float32[2, 3] on LAST",
    ),
    "no tensor": (
        lambda last: {"w": 5 if last else torch.ones(2, dtype=torch.int64)},
        "parameter 'w' is int64[2] on OTHERS and a int on LAST",
    ),
    "a lazy layer": (
        lambda last: (torch.nn.LazyLinear(2, bias=False) if last else torch.nn.Linear(3, 2, bias=False)).state_dict(),
        "parameter 'weight' is float32[2, 3] on OTHERS and a UninitializedParameter on LAST",
    ),
    "no list": (
        lambda last: torch.ones(2) if last else [torch.ones(2)],
        "parameter 0 is float32[2] on OTHERS and missing on LAST; params is missing on OTHERS and a Tensor on LAST",
    ),
}


@pytest.mark.parametrize("which", OTHERS)
def test_other_parameters_are_an_error_on_all_ranks(which):
    """Horovod waits for ever, as each broadcast has its parameter's name."""
    if hvd.size() == 1:
        return
    given, says = OTHERS[which]
    last = hvd.size() - 1
    others = "rank 0" if last == 1 else "ranks 0, 1" if last == 2 else f"ranks 0-{last - 1}"
    expected = "broadcast_parameters: " + says.replace("OTHERS", others).replace("LAST", f"rank {last}")
    with pytest.raises(hpccoll.MismatchError, match=re.escape(expected)):
        hvd.broadcast_parameters(given(hvd.rank() == last), root_rank=0)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_another_root_is_an_error_on_all_ranks():
    if hvd.size() == 1:
        return
    for root in (99, 1):
        with pytest.raises(hpccoll.MismatchError, match=f"root_rank is 0 on ranks? 0.* and {root} on rank 1"):
            hvd.broadcast_parameters({"w": torch.ones(2)}, root_rank=root if hvd.rank() == 1 else 0)


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
    with pytest.raises(hpccoll.MismatchError, match="group of 6 parameters on rank 0 and a group of 2 param"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=ROOT)


@pytest.mark.parametrize("other", [lambda p: torch.optim.Adam(p), lambda _: 4], ids=["another class", "no optimizer"])
def test_another_optimizer_is_an_error_on_all_ranks(other):
    if hvd.size() == 1:
        return
    parameters = list(model(seed=7).parameters())
    mine = other(parameters) if differs() else torch.optim.SGD(parameters, lr=0.1)
    with pytest.raises(hpccoll.MismatchError, match="optimizer is of class SGD on rank 0 and of class"):
        hvd.broadcast_optimizer_state(mine, root_rank=ROOT)


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
