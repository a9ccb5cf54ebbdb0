# SPDX-License-Identifier: Apache-2.0
"""The functions of hpccoll.h, blocking, asynchronous and as plans, in the Worlds that Python has made."""

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bindings_table import OPERATIONS as BINDINGS
from differential import process_sets
from differential.modes import Array, Mode, Way, one_by_one
from differential.modes_numpy import neighbours, place_for
from differential.operations import OF_ROWS, OPERATIONS, PLANNED, SPLIT
from differential.oracle import expected
from differential.programs import DTYPES, Abilities, Call, Unit

import hpccoll

KINDS = ("int32", "int64", "float32", "float64")
"""The dtypes that Fortran and C++ have, too."""
OF_ALL = Abilities(OPERATIONS, KINDS, narrow=False, large=True, misuses=("no reduction",))
"""The features of programs in C, C++ and Fortran."""
GROUPED = ("allreduce", "reduce", "scan", "exscan")


class Arguments(ctypes.Structure):
    """hpccoll_args."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("prescale", ctypes.c_double), ("postscale", ctypes.c_double),
        ("compression", ctypes.c_int), ("row", ctypes.c_int64),
    )  # fmt: skip


class OneOfGroup(ctypes.Structure):
    """hpccoll_array."""

    _fields_ = (
        ("given", ctypes.c_void_p), ("out", ctypes.c_void_p), ("count", ctypes.c_int64), ("dtype", ctypes.c_int),
    )  # fmt: skip


def enumerators(header: str) -> dict[str, int]:
    """Return the enumerators of hpccoll.h, by their names without HPCCOLL_."""
    codes: dict[str, int] = {}
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", header, re.DOTALL):
        value = -1
        for name, given in re.findall(
            r"HPCCOLL_(\w+)(?: = (-?\d+))?,?", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
        ):
            value = int(given) if given else value + 1
            codes[name] = value
    return codes


PACKAGE = Path(hpccoll.__file__).parent
LIBRARY = ctypes.CDLL(str(PACKAGE / "lib" / "libhpccoll.so.1"), mode=ctypes.RTLD_GLOBAL)
LIBRARY.hpccoll_last_error.restype = ctypes.c_char_p
CODES = enumerators((PACKAGE / "include" / "hpccoll.h").read_text())


def is_in_place(call: Call) -> bool:
    """Return whether the function has one array, for the values before and after."""
    return "both" in BINDINGS[call.operation].parameters


def code_of(call: Call) -> int:
    return 99 if call.misuse else CODES[call.reduction]


def row_of(call: Call) -> int:
    """Return the elements of a row, for operations that count rows."""
    return int(np.prod(call.trailing)) if call.operation in OF_ROWS else 1


def pointer_of(world: hpccoll.World) -> ctypes.c_void_p:
    """Return the pointer in the capsule of a World."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(pointer(world.capsule(), b"hpccoll.world"))


def worlds() -> dict[process_sets.Members, ctypes.c_void_p]:
    """Return the Worlds of all sets that this rank is in, for C."""
    made = {}
    for members, world in process_sets.all_worlds().items():
        if world:
            made[members] = ctypes.c_void_p()
            check(LIBRARY.hpccoll_world_from_python(pointer_of(world), ctypes.byref(made[members])))
    return made


def check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{status}: {LIBRARY.hpccoll_last_error().decode()}")


def pointer_to(x: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


class Memory:
    """The arrays of a unit, which C reads and writes."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.inputs = [call.values(unit.rank, unit.size) for call in unit.calls]
        self.wanted = [expected(call, unit.size)[unit.rank] for call in unit.calls]
        both = zip(unit.calls, self.inputs, self.wanted, strict=True)
        self.outputs = [np.zeros(x.shape if want is None else want.shape, call.dtype) for call, x, want in both]
        if unit.calls[0].operation == "sendrecv":
            self.outputs = [place_for(unit.calls[0])]
        self.name = unit.calls[0].name

    def fill(self, turn: int) -> None:
        for call, x, out in zip(self.unit.calls, self.inputs, self.outputs, strict=True):
            x[...] = call.values(self.unit.rank, self.unit.size, turn)
            if is_in_place(call):
                out[...] = x

    def results(self) -> list[Array | None]:
        return [None if want is None else out.copy() for want, out in zip(self.wanted, self.outputs, strict=True)]

    def more(self, *, has_name: bool) -> Any:
        call = self.unit.calls[0]
        name = self.name.encode() if self.name and has_name else None
        return ctypes.byref(Arguments(name, *call.factors, CODES["NO_COMPRESSION"], row_of(call)))

    def group(self) -> Any:
        rows = zip(self.unit.calls, self.inputs, self.outputs, strict=True)
        made = [(x.ctypes.data, out.ctypes.data, x.size, CODES[call.dtype.upper()]) for call, x, out in rows]
        return (OneOfGroup * len(made))(*made)


def arguments(memory: Memory) -> list[Any]:
    """Return the arguments of a function of C before `args`, in its order."""
    unit, call = memory.unit, memory.unit.calls[0]
    if unit.is_group:
        operation, root = CODES[call.operation.upper()], call.root if call.operation == "reduce" else 0
        return [operation, memory.group(), len(unit.calls), code_of(call), root]
    x, out, count = memory.inputs[0], memory.outputs[0], ctypes.c_int64(memory.inputs[0].size)
    splits = (ctypes.c_int64 * unit.size)(*call.splits(unit.rank, unit.size)) if call.operation in SPLIT else None
    given = dict.fromkeys(("in", "in_or_both"), pointer_to(x)) | dict.fromkeys(("count", "in_count"), count)
    given |= dict.fromkeys(("out", "out_or_none", "both"), pointer_to(out)) | {"splits": splits}
    given |= {"dtype": CODES[call.dtype.upper()], "op": code_of(call), "root": call.root}
    given |= {"out_count": ctypes.c_int64(out.size if memory.wanted[0] is not None else 0)}
    return [given.get(name) for name in BINDINGS[call.operation].parameters]


def run(memory: Memory, world: ctypes.c_void_p, form: str) -> None:
    call, made = memory.unit.calls[0], ctypes.c_void_p()
    if call.operation == "sendrecv":
        message(memory, call, world)
        return
    what = "group" if memory.unit.is_group else call.operation
    function = getattr(LIBRARY, f"hpccoll_{what}{form}")
    given = [*arguments(memory), memory.more(has_name=form != "_init"), world]
    check(function(*given, ctypes.byref(made)) if form else function(*given))
    if form == "_async":
        check(LIBRARY.hpccoll_wait(ctypes.byref(made)))
    if form == "_init":
        check(LIBRARY.hpccoll_start(made))
        check(LIBRARY.hpccoll_plan_wait(made))
        check(LIBRARY.hpccoll_plan_free(ctypes.byref(made)))


Run = Callable[[Memory, Any], None]
"""Makes the call of a unit, in the World of the front end, and waits for it."""


def way_of(run: Run, found: dict[process_sets.Members, Any]) -> Way:
    """Make a way of the function that makes the calls, in the Worlds of the sets."""

    def way(unit: Unit, turn: int) -> list[Array | None]:
        memory = Memory(unit)
        memory.fill(turn)
        run(memory, found[unit.members])
        return memory.results()

    return way


def modes_of(language: str, ways: list[Way], can: Abilities, planned: Abilities) -> list[Mode]:
    """Return the modes of a language, whose ways are blocking, asynchronous, and plans."""
    blocking, asynchronous, plans = map(one_by_one, ways)
    return [
        Mode(language, blocking, can),
        Mode(f"{language}, asynchronous", asynchronous, can),
        Mode(f"{language}, plans", plans, replace(planned, operations=PLANNED)),
    ]


def message(memory: Memory, call: Call, world: ctypes.c_void_p) -> None:
    """Send to the next rank, and receive from the one before."""
    (to, source), dtype = neighbours(memory.unit), CODES[call.dtype.upper()]
    request, x, out = ctypes.c_void_p(), memory.inputs[0], memory.outputs[0]
    received = ctypes.c_int64()
    check(LIBRARY.hpccoll_recv_async(
        pointer_to(out), ctypes.c_int64(out.size), dtype, source, 7, None, ctypes.byref(received), world,
        ctypes.byref(request),
    ))  # fmt: skip
    check(LIBRARY.hpccoll_send(pointer_to(x), ctypes.c_int64(x.size), dtype, to, 7, world))
    check(LIBRARY.hpccoll_wait(ctypes.byref(request)))
    assert received.value == out.size


def ways() -> list[Way]:
    found = worlds()
    return [way_of(partial(run, form=form), found) for form in ("", "_async", "_init")]


def modes() -> list[Mode]:
    can = Abilities(OPERATIONS, DTYPES, GROUPED, narrow=False, large=True, misuses=("no reduction",))
    return modes_of("C", ways(), can, replace(can, grouped=("allreduce", "reduce")))
