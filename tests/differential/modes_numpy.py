# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays: blocking calls, asynchronous ones, and plans."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from differential import process_sets
from differential.modes import Array, Mode, Results, in_turns, one_by_one, placed
from differential.operations import OF_PAIRS, OPERATIONS, PLANNED, REDUCES, ROOTED, SPLIT, WHOLE
from differential.programs import BYTES, DTYPES, MISUSES, REDUCTIONS, Abilities, Call, Program, Unit

import hpccoll


def largest(a: Array, b: Array) -> Array:
    """Keep the largest elements of two arrays, in order."""
    return np.sort(np.concatenate([a, b], axis=None))[-a.size :].reshape(a.shape) if a.size else a


OPS = {name: hpccoll.Reduction[name] for name in REDUCTIONS}
OPS |= {name: getattr(hpccoll, name) for name in OF_PAIRS}
OPS |= {WHOLE: hpccoll.UserReduction(largest, elementwise=False)}


def arguments(unit: Unit) -> dict[str, Any]:
    call = unit.calls[0]
    given: dict[str, Any] = {}
    if call.operation in REDUCES:
        given["op"] = 17 if call.misuse == "no reduction" else OPS[call.reduction]
    if call.factors != (1.0, 1.0):
        given["prescale"], given["postscale"] = call.factors
    if call.operation in ROOTED:
        given["root"] = hpccoll.MAX if call.misuse == "a reduction as the root" else call.root
    if call.operation in SPLIT:
        given["splits"] = call.splits(unit.rank, unit.size)
    return given


def inputs_of(unit: Unit, turn: int) -> list[Array]:
    return [call.given(unit.rank, unit.size, turn) for call in unit.calls]


def one_or_all(unit: Unit, inputs: list[Array]) -> Any:
    return inputs if unit.is_group else inputs[0]


def arrays(unit: Unit, result: Any) -> list[Array | None]:
    """Return the results of the calls. With splits, it is a pair: also how many rows came from each rank."""
    if result is None:
        return [None] * len(unit.calls)
    if unit.calls[0].operation in SPLIT:
        result = result[0]
    return list(result) if unit.is_group else [result]


def neighbours(unit: Unit) -> tuple[int, int]:
    """Return the next rank and the one before, around a ring."""
    return (unit.rank + 1) % unit.size, (unit.rank - 1) % unit.size


def place_for(call: Call) -> Array:
    """Make the array for a received message."""
    return np.empty(() if call.trailing is None else (call.rows, *call.trailing), call.dtype)


def block(unit: Unit, turn: int) -> list[Array | None]:
    """Make a blocking call."""
    call, inputs = unit.calls[0], inputs_of(unit, turn)
    if call.operation == "sendrecv":
        (to, source), result = neighbours(unit), inputs[0] if call.misuse else place_for(call)
        process_sets.world_of(unit.members).sendrecv(inputs[0], to, result, source)
        return [result]
    function = getattr(process_sets.world_of(unit.members), call.operation)
    return arrays(unit, function(one_or_all(unit, inputs), name=call.name, **arguments(unit)))


def begin(unit: Unit, turn: int) -> Any:
    call, inputs = unit.calls[0], inputs_of(unit, turn)
    if call.operation == "sendrecv":
        (to, source), result = neighbours(unit), place_for(call)
        world = process_sets.world_of(unit.members)
        received = world.recv_async(result, source)
        return [received, world.send_async(inputs[0], to), result]
    function = getattr(process_sets.world_of(unit.members), f"{call.operation}_async")
    return function(one_or_all(unit, inputs), name=call.name, **arguments(unit))


def end(unit: Unit, begun: Any) -> list[Array | None]:
    if isinstance(begun, list):
        begun[0].wait()
        begun[1].wait()
        return [begun[2]]
    return arrays(unit, begun.wait())


def asynchronous(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    begun = [(unit, begin(unit, turn)) for unit in program.ordered(rank, size)]
    return placed(program, [(unit, end(unit, one)) for unit, one in begun])


def waiting_anywhere(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    """Begin the calls in one order on all ranks; each rank waits for them where and in the order that it likes."""
    chance = random.Random(f"{rank} {turn} {program}")
    begun: list[tuple[Unit, Any]] = []
    ended = []
    for unit in program.units(rank, size):
        begun.append((unit, begin(unit, turn)))
        while begun and chance.random() < 0.5:
            one, handle = begun.pop(chance.randrange(len(begun)))
            ended.append((one, end(one, handle)))
    return placed(program, ended + [(unit, end(unit, handle)) for unit, handle in begun])


def planned(program: Program, rank: int, size: int) -> Results:
    """Make the plans of the calls once, and start them once per turn."""
    made = []
    for unit in program.units(rank, size):
        call, inputs = unit.calls[0], [np.ascontiguousarray(x).reshape(x.shape) for x in inputs_of(unit, 0)]
        if call.operation == "sendrecv":
            (to, source), result = neighbours(unit), place_for(call)
            world = process_sets.world_of(unit.members)
            both = [world.recv_init(result, source), world.send_init(inputs[0], to)]
            made.append((unit, inputs, both, result))
        else:
            make = getattr(process_sets.world_of(unit.members), f"{call.operation}_init")
            plan = make(one_or_all(unit, inputs), **arguments(unit))
            made.append((unit, inputs, [plan], None))
    results = [one_start(program, made, turn) for turn in range(program.turns)]
    for _, _, plans, _ in made:
        for plan in plans:
            plan.free()
    return results


def one_start(program: Program, made: list[Any], turn: int) -> list[Array | None]:
    for unit, inputs, _, _ in made:
        for call, x in zip(unit.calls, inputs, strict=True):
            x[...] = call.values(unit.rank, unit.size, turn)
    for _, _, plans, _ in made:
        hpccoll.start_all(plans)
    ended = [(unit, hpccoll.wait_all(plans)[0], result) for unit, _, plans, result in made]
    kept = [(unit, arrays(unit, made if result is None else result)) for unit, made, result in ended]
    return placed(program, [(unit, [None if x is None else x.copy() for x in each]) for unit, each in kept])


def modes() -> list[Mode]:
    reductions = (*REDUCTIONS, *OF_PAIRS, WHOLE)
    can = Abilities(OPERATIONS, (*DTYPES, *BYTES), ("allreduce", "reduce"), reductions=reductions, large=True)
    wrong = ("a reduction as the root", "no reduction")
    return [
        Mode("NumPy, blocking", one_by_one(block), replace(can, misuses=tuple(MISUSES))),
        Mode("NumPy, asynchronous", in_turns(asynchronous), can),
        Mode("NumPy, waiting anywhere", in_turns(waiting_anywhere), can),
        Mode("NumPy, plans", planned, replace(can, operations=PLANNED, reductions=REDUCTIONS, misuses=wrong)),
    ]
