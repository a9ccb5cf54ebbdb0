# SPDX-License-Identifier: Apache-2.0
"""PyTorch, by Horovod's interface: blocking functions, asynchronous ones, gradients once and twice, training."""

from dataclasses import replace
from typing import Any

import torch
from differential import oracle, process_sets
from differential.modes import Array, Mode, Results, in_turns, placed
from differential.operations import EPSILON, NORMALIZE
from differential.programs import Abilities, Call, Program, Unit

import hpccoll.torch as hvd

OPERATIONS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "gather", "scatter")
GROUPED = ("allreduce", "allgather", "reducescatter")
DERIVED = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
REDUCTIONS = {"SUM": hvd.Sum, "AVERAGE": hvd.Average, "MIN": hvd.Min, "MAX": hvd.Max, "PRODUCT": hvd.Product}


def reduction(call: Call) -> Any:
    return 17 if call.misuse == "no reduction" else REDUCTIONS[call.reduction]


def arguments(unit: Unit) -> dict[str, Any]:
    """Return the arguments that Horovod's functions have in all frameworks."""
    call = unit.calls[0]
    given: dict[str, Any] = {"name": call.name, "process_set": process_sets.process_set_of(unit.members)}
    if call.operation in ("allreduce", "reducescatter", "reduce"):
        given["op"] = reduction(call)
    if call.factors != (1.0, 1.0):
        given["prescale_factor"], given["postscale_factor"] = call.factors
    if call.operation in ("broadcast", "reduce", "gather", "scatter"):
        wrong = call.misuse == "a reduction as the root"
        given["root_rank"] = hvd.Max if wrong else process_sets.global_rank(unit.members, call.root)
    return given


def apply(unit: Unit, tensors: list[Any], suffix: str = "") -> Any:
    call = unit.calls[0]
    more = {"splits": torch.tensor(call.splits(unit.rank, unit.size))} if call.operation == "alltoall" else {}
    function = getattr(hvd, f"{'grouped_' if unit.is_group else ''}{call.operation}{suffix}")
    return function(tensors if unit.is_group else tensors[0], **arguments(unit), **more)


def tensors_of(unit: Unit, turn: int) -> list[Any]:
    return [tensor(call, unit, turn) for call in unit.calls]


def tensor(call: Call, unit: Unit, turn: int) -> Any:
    x = call.given(unit.rank, unit.size, turn)
    return torch.from_numpy(x if all(stride >= 0 for stride in x.strides) else x.copy())


def results(unit: Unit, result: Any) -> list[Any]:
    if unit.is_group:
        return list(result)
    return [result[0] if isinstance(result, (tuple, list)) else result]


def arrays(unit: Unit, result: Any) -> list[Array | None]:
    return [None if one is None else one.detach().numpy() for one in results(unit, result)]


def blocking(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    units = program.units(rank, size)
    return placed(program, [(unit, arrays(unit, apply(unit, tensors_of(unit, turn)))) for unit in units])


def asynchronous(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    begun = [(unit, apply(unit, tensors_of(unit, turn), "_async")) for unit in program.ordered(rank, size)]
    return placed(program, [(unit, arrays(unit, hvd.synchronize(handle))) for unit, handle in begun])


def derived(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    inputs, total = [], torch.zeros((), dtype=torch.float64)
    for unit in program.units(rank, size):
        leaves = [x.requires_grad_() for x in tensors_of(unit, turn)]
        for call, result in zip(unit.calls, results(unit, apply(unit, leaves)), strict=True):
            weights = torch.as_tensor(oracle.weight(call, unit.size, unit.rank, turn))
            total = total + (result.double() * weights).sum()
        inputs.append((unit, leaves))
    if inputs:
        total.backward()
    return placed(program, [(unit, [x.grad.numpy() for x in leaves]) for unit, leaves in inputs])


def derived_twice(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    inputs, total = [], torch.zeros((), dtype=torch.float64)
    for unit in program.units(rank, size):
        leaves = [x.requires_grad_() for x in tensors_of(unit, turn)]
        loss = torch.zeros((), dtype=torch.float64)
        for call, result in zip(unit.calls, results(unit, apply(unit, leaves)), strict=True):
            weights = torch.as_tensor(oracle.weight(call, unit.size, unit.rank, turn))
            loss = loss + (result.double() ** 2 * weights).sum() / 2
        for call, first in zip(unit.calls, torch.autograd.grad(loss, leaves, create_graph=True), strict=True):
            vector = torch.as_tensor(oracle.vector(call, unit.size, unit.rank, turn))
            total = total + (first.double() * vector).sum()
        inputs.append((unit, leaves))
    if inputs:
        total.backward()
    return placed(program, [(unit, [x.grad.numpy() for x in leaves]) for unit, leaves in inputs])


def trained(program: Program, rank: int, size: int) -> Results:
    """Make the arrays the gradients of parameters, from which SGD subtracts the mean of all ranks."""
    given = [[tensor(unit.calls[0], unit, turn) for unit in program.units(rank, size)] for turn in range(program.turns)]
    parameters = [torch.nn.Parameter(torch.zeros_like(x)) for x in given[0]]
    named = [(f"parameter {i}", parameter) for i, parameter in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named_parameters=named)
    made: Results = []
    for gradients in given:
        optimizer.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.data.zero_()
            loss = loss + (parameter * gradient).sum().double()
        loss.backward()
        optimizer.step()
        made.append([-parameter.detach().clone().numpy() for parameter in parameters])
    return made


def normalized(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    made = []
    for unit in program.units(rank, size):
        layer = hvd.SyncBatchNorm(unit.calls[0].trailing[0], eps=EPSILON, affine=False)
        made.append((unit, [layer(x).numpy() for x in tensors_of(unit, turn)]))
    return placed(program, made)


def modes() -> list[Mode]:
    misuses = ("a reduction as the root", "no reduction")
    can = Abilities(OPERATIONS, grouped=GROUPED, large=True, misuses=misuses)
    derives = Abilities(DERIVED, ("float32", "float64"), GROUPED, derives="Horovod")
    trains = Abilities(
        ("allreduce",), derives.dtypes, sets=False, reductions=("AVERAGE",), scaled=False, disagrees=False
    )
    return [
        Mode("PyTorch, blocking", in_turns(blocking), can),
        Mode("PyTorch, asynchronous", in_turns(asynchronous), replace(can, misuses=())),
        Mode("PyTorch, gradients", in_turns(derived), derives),
        Mode("PyTorch, second gradients", in_turns(derived_twice), replace(derives, twice=True)),
        Mode("PyTorch, DistributedOptimizer", trained, replace(trains, large=True)),
        Mode("PyTorch, SyncBatchNorm", in_turns(normalized), replace(trains, operations=(NORMALIZE,), empty=False)),
    ]
