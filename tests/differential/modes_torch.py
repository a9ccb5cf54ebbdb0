# SPDX-License-Identifier: Apache-2.0
"""PyTorch, by Horovod's interface: blocking functions, asynchronous ones, and the gradients of the differentiable."""

from typing import Any

import torch
from differential import oracle, process_sets
from differential.modes import Array, Mode, in_turns, placed
from differential.programs import Abilities, Call, Program, Unit

import hpccoll.torch as hvd

OPERATIONS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "gather", "scatter")
GROUPED = ("allreduce", "allgather", "reducescatter")
DERIVED = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
REDUCTIONS = {"SUM": hvd.Sum, "AVERAGE": hvd.Average, "MIN": hvd.Min, "MAX": hvd.Max, "PRODUCT": hvd.Product}


def arguments(unit: Unit) -> dict[str, Any]:
    """Return the arguments that Horovod's functions have in all frameworks."""
    call = unit.calls[0]
    given: dict[str, Any] = {"name": call.name, "process_set": process_sets.process_set_of(unit.members)}
    if call.operation in ("allreduce", "reducescatter", "reduce"):
        given["op"] = REDUCTIONS[call.reduction]
    if call.factors != (1.0, 1.0):
        given["prescale_factor"], given["postscale_factor"] = call.factors
    if call.operation in ("broadcast", "reduce", "gather", "scatter"):
        given["root_rank"] = process_sets.global_rank(unit.members, call.root)
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


def modes() -> list[Mode]:
    can = Abilities(OPERATIONS, grouped=GROUPED)
    derives = Abilities(DERIVED, ("float32", "float64"), GROUPED, derives="Horovod")
    return [
        Mode("PyTorch, blocking", in_turns(blocking), can),
        Mode("PyTorch, asynchronous", in_turns(asynchronous), can),
        Mode("PyTorch, gradients", in_turns(derived), derives),
    ]
