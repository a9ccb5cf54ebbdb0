# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: programs that a mode can run, programs in which a rank differs, programs with gradients."""

from dataclasses import replace

from differential.operations import (
    NORMALIZE,
    OF_PAIRS,
    OF_ROWS,
    OPERATIONS,
    PAIRS,
    PREFIX,
    REDUCES,
    ROOTED,
    WHOLE,
)
from differential.programs import BYTES, LAYOUTS, MISUSES, REDUCTIONS, Abilities, Call, Program
from hypothesis import strategies as st

FACTORS = ((1.0, 1.0), (0.5, 1.0), (1.0, 0.25), (2.0, 0.5))
NAMES = (None, *(f"name {i}" for i in range(5)))


@st.composite
def reductions(draw: st.DrawFn, call: Call, can: Abilities) -> Call:
    """Draw a reduction that the call's operation and dtype have, with its factors or the dtype that it needs."""
    real = call.dtype.startswith("float")
    absent = () if real and call.operation not in PREFIX else ("AVERAGE",)
    absent += () if call.operation in ("allreduce", "reduce") else (WHOLE,)
    reduction = draw(st.sampled_from([each for each in can.reductions if each not in absent]))
    if reduction in OF_PAIRS:
        return replace(call, reduction=reduction, dtype=PAIRS)
    if reduction == WHOLE:  # large arrays are reduced in pieces, if their elements are independent
        return replace(call, reduction=reduction, rows=draw(st.sampled_from((1, 700))), trailing=(40,))
    if can.large and reduction == "AVERAGE" and draw(st.booleans()):
        return replace(call, reduction=reduction, large=True)
    has_factors = real and reduction in ("SUM", "AVERAGE") and call.operation in ("allreduce", "reducescatter")
    factors = draw(st.sampled_from(FACTORS)) if can.scaled and has_factors else (1.0, 1.0)
    return replace(call, reduction=reduction, factors=factors)


@st.composite
def arrays(draw: st.DrawFn, call: Call, can: Abilities) -> Call:
    """Draw another array for the call: dtype, shape, layout, values."""
    types = [dtype for dtype in can.dtypes if dtype not in BYTES or call.operation not in REDUCES]
    trailing: list[tuple[int, ...] | None] = [(), (1,), (3,), (2, 3), (40,)]
    trailing += [(0,)] if can.narrow or call.operation not in OF_ROWS else []
    if call.operation == NORMALIZE:
        trailing = [(1,), (3,), (40,)]
    elif call.operation not in OF_ROWS:
        trailing += [None]
    return replace(
        call,
        dtype=draw(st.sampled_from(types)),
        rows=draw(st.sampled_from((1, 2, 3, 5, *([0] if can.empty else []), 700))),
        trailing=draw(st.sampled_from(trailing)),
        layout=draw(st.sampled_from(LAYOUTS)),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def calls(draw: st.DrawFn, size: int, can: Abilities, operations: tuple[str, ...] = ()) -> Call:
    """Draw a call of all ranks, or of some."""
    call = draw(arrays(Call(draw(st.sampled_from(operations or can.operations))), can))
    members = None
    if can.sets and draw(st.integers(0, 3)) == 0:
        members = tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=max(1, size - 1)))))
    if call.operation in REDUCES:
        call = draw(reductions(call, can))
    return replace(
        call,
        root=draw(st.integers(0, (len(members) if members else size) - 1)) if call.operation in ROOTED else 0,
        name=None if call.operation == "sendrecv" else draw(st.sampled_from(NAMES)),
        members=members,
    )


@st.composite
def units(draw: st.DrawFn, size: int, can: Abilities, number: int) -> list[Call]:
    """Draw a call, or a group of calls with arrays of other shapes and dtypes."""
    first = draw(calls(size, can))
    is_basic = first.operation not in REDUCES or first.reduction in REDUCTIONS
    if first.operation not in can.grouped or not is_basic or not draw(st.booleans()):
        return [first]
    of_floats = first.reduction == "AVERAGE" or first.factors != (1.0, 1.0)
    types = tuple(dtype for dtype in can.dtypes if not of_floats or dtype.startswith("float"))
    more = draw(st.lists(arrays(replace(first, name=None), replace(can, dtypes=types)), min_size=0, max_size=3))
    return [replace(call, group=number) for call in (first, *more)]


def unique_names(given: list[Call]) -> tuple[Call, ...]:
    """Remove the name of later calls with the same name, because a name may be in flight only once."""
    seen: set[str] = set()
    result = []
    for call in given:
        result.append(replace(call, name=None) if call.name in seen else call)
        seen |= {call.name} if call.name else set()
    return tuple(result)


@st.composite
def programs(draw: st.DrawFn, size: int, can: Abilities) -> Program:
    """Programs that a mode can run."""
    count = draw(st.integers(1, 6))
    given = [call for number in range(count) for call in draw(units(size, can, number))]
    return Program(
        unique_names(given),
        orders=draw(st.none() | st.integers(0, 99)),
        turns=draw(st.sampled_from((1, 2, 3))),
    )


# ---- programs of which one rank makes another last call ------------------------------------------------

COMPARED = tuple(name for name in OPERATIONS if name not in ("scatter", "sendrecv"))
"""The ranks compare their arrays; a scatter has that of the root alone."""
DIFFERENT: dict[str, tuple[str, ...]] = {
    "dtype": COMPARED,
    "trailing": COMPARED,
    "reduction": REDUCES,
    "root": ROOTED,
}
"""The properties in which one rank may differ, with their operations. The number of rows of a gather may differ."""
OTHER = {
    "int32": "float32", "int64": "float64", "float16": "int32", "float32": "int32", "float64": "int64",
    "datetime64[s]": "datetime64[ms]", ">i4": ">f4", ">f8": ">i8", "S4": "U1", "U3": "S12", "i4,f8": "f8,i4",
}  # fmt: skip
"""Another dtype, of the same size where there is one."""


@st.composite
def disagreements(draw: st.DrawFn, size: int, can: Abilities) -> Program:
    """Programs of which one rank makes another last call."""
    program = draw(programs(size, can))
    what = draw(st.sampled_from([what for what, of in DIFFERENT.items() if set(of) & set(can.operations)]))
    chosen = tuple(name for name in DIFFERENT[what] if name in can.operations)
    drawn = draw(calls(size, replace(can, sets=False, reductions=("SUM",)), chosen))
    trailing = drawn.trailing or (1,)
    call = replace(drawn, rows=2, trailing=trailing, reduction="SUM", factors=(1.0, 1.0))
    wider = replace(call, trailing=(*trailing[:-1], trailing[-1] + 1))
    other = {
        "dtype": replace(call, dtype=OTHER[call.dtype]),
        "trailing": wider,
        "reduction": replace(call, reduction="MAX"),
        "root": replace(call, root=(call.root + 1) % size),
    }[what]
    given = unique_names([*program.calls[:2], call])
    other = replace(wider if other == call else other, name=given[-1].name)
    return Program(given, differs=(draw(st.integers(0, size - 1)), other))


@st.composite
def misuses(draw: st.DrawFn, size: int, can: Abilities) -> Program:
    """Programs whose last call has an argument that is an error on every rank."""
    program = draw(programs(size, can))
    misuse = draw(st.sampled_from(can.misuses))
    chosen = tuple(name for name in MISUSES[misuse] if name in can.operations)
    call = draw(calls(size, replace(can, sets=False, reductions=("SUM",)), chosen))
    wrong = replace(call, rows=2, trailing=(3,), layout="C", misuse=misuse)  # in another layout, messages are copied
    return Program(unique_names([*program.calls[:2], wrong]))


@st.composite
def derivable(draw: st.DrawFn, size: int, can: Abilities) -> Program:
    """Programs whose results have gradients: sums and means."""
    program = draw(programs(size, can))
    smooth = tuple(
        replace(call, reduction="SUM") if call.reduction in ("MIN", "MAX", "PRODUCT") else call
        for call in program.calls
    )
    return replace(program, calls=smooth)
