# SPDX-License-Identifier: Apache-2.0
"""Questions about parameters, objects and optimizers."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from asking import RANK, SIZE, ask, hvd, tensor

# ---- parameters, states, objects ------------------------------------------------------------------------


def network() -> torch.nn.Module:
    """Make a network that is equal on all ranks until each changes its weights."""
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def with_weights_of(model: torch.nn.Module, rank: int) -> torch.nn.Module:
    random = np.random.default_rng(rank)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(random.standard_normal(parameter.shape).astype(np.float32)))
    return model


@ask("state_dict", "named list", "list", "generator")
def broadcast_parameters(form: str) -> Any:
    model = with_weights_of(network(), RANK)
    forms = {
        "state_dict": model.state_dict(),
        "named list": list(model.named_parameters()),
        "list": list(model.parameters()),
        "generator": model.named_parameters(),
    }
    with torch.no_grad():
        hvd.broadcast_parameters(forms[form], root_rank=SIZE - 1)
    return list(model.parameters())


@ask("SGD", "Adam", "Adagrad", "LBFGS")
def broadcast_optimizer_state(name: str) -> Any:
    model = with_weights_of(network(), RANK)
    options: dict[str, Any] = {"lr": 0.1 * (RANK + 1)} | ({"momentum": 0.9} if name == "SGD" else {})
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    if name != "LBFGS":
        model(torch.ones(2, 3) * (RANK + 1)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return optimizer.state_dict()


@ask("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
def state_of_a_distributed_optimizer(name: str) -> Any:
    model = with_weights_of(network(), 0)
    wrapped = getattr(torch.optim, name)(model.parameters(), lr=0.01 * (RANK + 1))
    optimizer = hvd.DistributedOptimizer(wrapped, model.named_parameters())
    for step in range(2):
        optimizer.zero_grad()
        model(inputs(step)).square().mean().backward()
        optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=SIZE - 1)
    return list(model.parameters()), optimizer.state_dict()


@ask()
def a_state_that_is_not_there_yet() -> Any:
    model = with_weights_of(network(), 0)
    optimizer = distributed(model)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.zero_grad()
    model(inputs(0)).square().mean().backward()
    optimizer.step()
    return list(model.parameters()), optimizer.state_dict()


@ask("SGD", "Adam", "SparseAdam", "distributed SGD", "distributed Adam")
def gradients_after_the_broadcast_of_a_fresh_optimizer(case: str) -> Any:
    name = case.split()[-1]
    model: Any = torch.nn.Embedding(4, 2, sparse=True) if name == "SparseAdam" else network()
    optimizer = getattr(torch.optim, name)(with_weights_of(model, 0).parameters(), lr=0.1)
    if "distributed" in case:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return [p.grad for p in model.parameters()]


@ask()
def attributes_of_a_distributed_optimizer() -> Any:
    model = network()
    optimizer = distributed(model)
    without_names = hvd.DistributedOptimizer(torch.optim.SGD([{"params": list(model.parameters())}], lr=0.1))
    return [
        sorted(optimizer._parameter_names.values()), sorted(without_names._parameter_names.values()),
        optimizer._compression is hvd.Compression.none, optimizer.backward_passes_per_step, len(optimizer._handles),
        optimizer.process_set is hvd.global_process_set, sorted(optimizer._allreduce_delay.values()),
        len(optimizer._requires_update), optimizer.__module__ == hvd.DistributedOptimizer.__module__,
    ]  # fmt: skip


@ask("SparseAdam", "SGD")
def sparse_gradients_made_dense(name: str) -> Any:
    model = torch.nn.Embedding(5, 2, sparse=True)
    inner = getattr(torch.optim, name)(with_weights_of(model, 0).parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), sparse_as_dense=True)
    gradients = []
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([RANK, 2, step])).square().sum().backward()
        optimizer.step()
        gradients.append(model.weight.grad)
    return gradients, model.weight


@ask()
def objects() -> Any:
    mine = {"rank": RANK, "list": [RANK] * (RANK + 1), "array": tensor(RANK + 1)}
    return (
        hvd.broadcast_object(mine, SIZE - 1),
        hvd.allgather_object(mine),
        hvd.broadcast_object(mine, name="named"),
    )


# ---- DistributedOptimizer -------------------------------------------------------------------------------

OPTIMIZERS: dict[str, Callable[[torch.nn.Module], dict[str, Any]]] = {
    "as it is": lambda model: {},
    "without names": lambda model: {"named_parameters": None},
    "Sum": lambda model: {"op": hvd.Sum},
    "fp16": lambda model: {"compression": hvd.Compression.fp16},
    "two passes": lambda model: {"backward_passes_per_step": 2},
    "num_groups": lambda model: {"num_groups": 2},
    "groups": lambda model: {"groups": 2},
    "groups by hand": lambda model: {"groups": [list(model.parameters())[:2], list(model.parameters())[2:3]]},
    "groups and fp16": lambda model: {"groups": 1, "compression": hvd.Compression.fp16},
    "predivided": lambda model: {"gradient_predivide_factor": 2.0},
    "Adasum": lambda model: {"op": hvd.Adasum},
    "Adasum, two passes": lambda model: {"op": hvd.Adasum, "backward_passes_per_step": 2},
    "of all ranks": lambda model: {"process_set": hvd.global_process_set},
}
"""Arguments of the optimizer other than its parameters."""


def distributed(model: torch.nn.Module, **options: Any) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    return hvd.DistributedOptimizer(sgd, **({"named_parameters": model.named_parameters()} | options))


def inputs(step: int) -> torch.Tensor:
    return tensor(4, 3, seed=100 + step)


@ask(*OPTIMIZERS)
def optimizer(name: str) -> Any:
    model = with_weights_of(network(), 0)
    options = OPTIMIZERS[name](model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = distributed(model, **options)
    for step in range(3):
        optimizer.zero_grad()
        for turn in range(options.get("backward_passes_per_step", 1)):
            model(inputs(2 * step + turn)).square().mean().backward()
        optimizer.step()
    kind = [type(optimizer).__name__, isinstance(optimizer, torch.optim.SGD)]
    return kind, list(model.parameters()), [parameter.grad for parameter in model.parameters()]


@ask("synchronize, skipped", "synchronize, not skipped", "closure", "clipped", "a branch not taken", "frozen")
def optimizer_used_like(case: str) -> Any:
    model = with_weights_of(network(), 0)
    if case == "frozen":
        model[0].requires_grad_(False)
    optimizer = distributed(model)
    model(inputs(0)).square().mean().backward() if case != "a branch not taken" or RANK else None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if case in ("synchronize, skipped", "clipped"):
            optimizer.synchronize()
            if case == "clipped":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                result = optimizer.step()
        else:
            optimizer.synchronize() if case == "synchronize, not skipped" else None
            result = optimizer.step((lambda: 7.0) if case == "closure" else None)
    return result, list(model.parameters()), sorted({warning.category.__name__ for warning in seen})


@ask()
def gradients_switched_off_and_on() -> Any:
    first, second = with_weights_of(network(), 0), with_weights_of(torch.nn.Linear(1, 1), 1)
    optimizers = [distributed(first), distributed(second)]
    for step in range(4):
        for i, model in enumerate((first, second)):
            model.requires_grad_(i == step % 2)
            optimizers[i].zero_grad()
        second(first(inputs(step))).sum().backward()
        optimizers[step % 2].step()
    return list(first.parameters()), list(second.parameters())


@ask("sparse_as_dense", "sparse")
def optimizer_of_sparse_gradients(case: str) -> Any:
    model = torch.nn.Embedding(5, 2, sparse=True)
    with_weights_of(model, 0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), sparse_as_dense=case == "sparse_as_dense")
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([RANK, 2])).sum().backward()
        optimizer.step()
    return model.weight


@ask(
    "zero_grad",
    "three passes",
    "names twice",
    "not pairs",
    "one unnamed",
    "groups of numbers",
    "0 groups",
)
def optimizer_misused(case: str) -> Any:
    model = with_weights_of(network(), 0)
    pairs = list(model.named_parameters())
    bad: dict[str, dict[str, Any]] = {
        "names twice": {"named_parameters": [("same", parameter) for _, parameter in pairs]},
        "not pairs": {"named_parameters": list(model.parameters())},
        "one unnamed": {"named_parameters": pairs[1:]},
        "groups of numbers": {"groups": [[1, 2]]},
        "0 groups": {"groups": 0},
        "zero_grad": {},
        "three passes": {"backward_passes_per_step": 2},
    }
    optimizer = distributed(model, **bad[case])
    try:
        for turn in range(3 if case == "three passes" else 1):
            model(inputs(turn)).sum().backward()
        optimizer.zero_grad()
    finally:
        optimizer.synchronize()
    return list(model.parameters())


@ask()
def optimizer_with_other_passes_later() -> Any:
    model = with_weights_of(network(), 0)
    optimizer = distributed(model)
    optimizer.set_backward_passes_per_step(2)
    for turn in range(2):
        model(inputs(turn)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    return optimizer.backward_passes_per_step, list(model.parameters()), optimizer.state_dict()


# ---- the rest -------------------------------------------------------------------------------------------


@ask("a host's tensor", "one value a channel")
def sync_batch_norm(case: str) -> Any:
    norm = hvd.SyncBatchNorm(3)
    return norm(tensor(*((4, 3, 2) if case == "a host's tensor" else (1, 3))))


@ask()
def timeline() -> Any:
    path = Path(sys.argv[2]).with_suffix(".timeline")
    started = hvd.start_timeline(str(path), mark_cycles=True)
    hvd.allreduce(tensor(4), name="drawn")
    stopped = hvd.stop_timeline()
    return started, stopped, "drawn" in path.read_text() if RANK == 0 else None
