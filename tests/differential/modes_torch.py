# SPDX-License-Identifier: Apache-2.0
"""PyTorch, by Horovod's interface: blocking functions, asynchronous ones, and the gradients of the differentiable."""

from typing import Any

import torch
from differential.modes import Array, Mode, in_turns, placed
from differential.programs import DTYPES, Call, Program, weight

import hpccoll.torch as hvd

OPERATIONS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "reduce", "gather", "scatter")
DERIVED = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
REDUCTIONS = {"SUM": hvd.Sum, "AVERAGE": hvd.Average, "MIN": hvd.Min, "MAX": hvd.Max, "PRODUCT": hvd.Product}


def arguments(call: Call, rank: int, size: int) -> dict[str, Any]:
    """What Horovod's functions have in common, whatever the framework."""
    given: dict[str, Any] = {}
    if call.operation in ("allreduce", "reducescatter", "reduce"):
        given["op"] = REDUCTIONS[call.reduction]
    if call.factors != (1.0, 1.0):
        given["prescale_factor"], given["postscale_factor"] = call.factors
    if call.operation in ("broadcast", "reduce", "gather", "scatter"):
        given["root_rank"] = call.root
    return given


def split(call: Call, rank: int, size: int) -> dict[str, Any]:
    return {"splits": torch.tensor(call.splits(rank, size))} if call.operation == "alltoall" else {}


def array(result: Any) -> Array | None:
    result = result[0] if isinstance(result, (tuple, list)) else result
    return None if result is None else result.detach().numpy()


def blocking(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    return [
        array(getattr(hvd, call.operation)(
            torch.from_numpy(call.given(rank, size, turn)), name=call.name, **arguments(call, rank, size),
            **split(call, rank, size),
        ))
        for call in program.calls
    ]  # fmt: skip


def asynchronous(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    handles = []
    for i in program.order(rank):
        call = program.calls[i]
        x = torch.from_numpy(call.given(rank, size, turn))
        begin = getattr(hvd, f"{call.operation}_async")
        handles.append(begin(x, name=call.name, **arguments(call, rank, size), **split(call, rank, size)))
    return placed(program, rank, [array(hvd.synchronize(handle)) for handle in handles])


def derived(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    inputs, total = [], torch.zeros((), dtype=torch.float64)
    for call in program.calls:
        x = torch.from_numpy(call.given(rank, size, turn)).requires_grad_()
        result = getattr(hvd, call.operation)(
            x, name=call.name, **arguments(call, rank, size), **split(call, rank, size)
        )
        result = result[0] if isinstance(result, tuple) else result
        total = total + (result.double() * torch.from_numpy(weight(call, size, rank, turn))).sum()
        inputs.append(x)
    total.backward()
    return [array(x.grad) for x in inputs]


def modes() -> list[Mode]:
    return [
        Mode("PyTorch, blocking", in_turns(blocking), OPERATIONS, DTYPES),
        Mode("PyTorch, asynchronous", in_turns(asynchronous), OPERATIONS, DTYPES),
        Mode("PyTorch, gradients", in_turns(derived), DERIVED, ("float32", "float64"), derives="Horovod"),
    ]
