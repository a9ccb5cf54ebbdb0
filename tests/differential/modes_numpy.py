# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays: blocking calls, asynchronous ones, plans, and the interface of C in the same process."""

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
from differential.modes import Array, Mode, in_turns, placed
from differential.programs import DTYPES, OPERATIONS, REDUCES, ROOTED, Call, Program, expected

import hpccoll


def arguments(call: Call, rank: int, size: int) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if call.operation in REDUCES:
        given["op"] = hpccoll.Reduction[call.reduction]
    if call.factors != (1.0, 1.0):
        given["prescale"], given["postscale"] = call.factors
    if call.operation in ROOTED:
        given["root"] = call.root
    if call.operation == "alltoall":
        given["splits"] = call.splits(rank, size)
    return given


def array(result: Any) -> Array | None:
    """An alltoall returns the rows that came from each rank, too."""
    return result[0] if isinstance(result, tuple) else result


def sent_around(call: Call, rank: int, size: int, turn: int) -> Array:
    result = np.empty((call.rows, call.columns), call.dtype)
    x = call.given(rank, size, turn)
    hpccoll.sendrecv(x, (rank + 1) % size, result, (rank - 1) % size)
    return result


def blocking(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    def run(call: Call) -> Array | None:
        if call.operation == "sendrecv":
            return sent_around(call, rank, size, turn)
        function = getattr(hpccoll, call.operation)
        return array(function(call.given(rank, size, turn), name=call.name, **arguments(call, rank, size)))

    return [run(call) for call in program.calls]


def asynchronous(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
    def begin(call: Call) -> Any:
        if call.operation == "sendrecv":
            result = np.empty((call.rows, call.columns), call.dtype)
            received = hpccoll.recv_async(result, (rank - 1) % size)
            sent = hpccoll.send_async(call.given(rank, size, turn), (rank + 1) % size)
            return [received, sent, result]
        function = getattr(hpccoll, f"{call.operation}_async")
        return function(call.given(rank, size, turn), name=call.name, **arguments(call, rank, size))

    def end(begun: Any) -> Array | None:
        if isinstance(begun, list):
            begun[0].wait()
            begun[1].wait()
            return begun[2]  # type: ignore[no-any-return]
        return array(begun.wait())

    begun = [begin(program.calls[i]) for i in program.order(rank)]
    return placed(program, rank, [end(one) for one in begun])


def planned(program: Program, rank: int, size: int) -> list[list[Array | None]]:
    """The plans of the calls are made once, and started once per turn."""
    inputs = [np.ascontiguousarray(call.given(rank, size)) for call in program.calls]
    plans = [
        getattr(hpccoll, f"{call.operation}_init")(x, **arguments(call, rank, size))
        for call, x in zip(program.calls, inputs, strict=True)
    ]
    results = []
    for turn in range(program.turns):
        for call, x in zip(program.calls, inputs, strict=True):
            x[...] = call.values(rank, size, turn)
        hpccoll.start_all(plans)
        made = map(array, hpccoll.wait_all(plans))
        results.append([None if result is None else result.copy() for result in made])
    for plan in plans:
        plan.free()
    return results


# ---- C -------------------------------------------------------------------------------------------------


class Arguments(ctypes.Structure):
    """hpccoll_args."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("prescale", ctypes.c_double), ("postscale", ctypes.c_double),
        ("compression", ctypes.c_int), ("row", ctypes.c_int64),
    )  # fmt: skip


class InC:
    """The functions of hpccoll.h in the World that Python has made."""

    def __init__(self, world: hpccoll.World) -> None:
        package = Path(hpccoll.__file__).parent
        self.library = ctypes.CDLL(str(package / "lib" / "libhpccoll.so.1"))
        self.library.hpccoll_last_error.restype = ctypes.c_char_p
        self.library.hpccoll_world_from_python.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.codes = enumerators((package / "include" / "hpccoll.h").read_text())
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.world = ctypes.c_void_p()
        found = pointer(hpccoll.capsule(world), b"hpccoll.world")
        assert self.library.hpccoll_world_from_python(found, ctypes.byref(self.world)) == 0

    def run(self, call: Call, rank: int, size: int, turn: int) -> Array | None:
        want = expected(call, size)[rank]
        x = np.ascontiguousarray(call.given(rank, size, turn))
        out = x.copy() if call.operation == "broadcast" else np.zeros(x.shape if want is None else want.shape, x.dtype)
        name = call.name.encode() if call.name else None
        more = Arguments(name, *call.factors, self.codes["DTYPES"], call.columns)
        status = self.status_of(call, pointer_to(x), pointer_to(out), x.size, ctypes.byref(more))
        assert status == 0, self.library.hpccoll_last_error()
        return out if want is not None else None

    def status_of(self, call: Call, given: Any, out: Any, size: int, more: Any) -> int:
        function, count = getattr(self.library, f"hpccoll_{call.operation}"), ctypes.c_int64(size)
        dtype, op = self.codes[call.dtype.upper()], self.codes[call.reduction]
        if call.operation == "broadcast":
            return int(function(out, count, dtype, call.root, more, self.world))
        root = (call.root,) if call.operation == "reduce" else ()
        return int(function(given, out, count, dtype, op, *root, more, self.world))


def enumerators(header: str) -> dict[str, int]:
    """Those of hpccoll.h, by their names without HPCCOLL_."""
    codes: dict[str, int] = {}
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", header, re.DOTALL):
        value = -1
        for name, given in re.findall(
            r"HPCCOLL_(\w+)(?: = (-?\d+))?,?", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
        ):
            value = int(given) if given else value + 1
            codes[name] = value
    return codes


def pointer_to(x: Array) -> Any:
    return x.ctypes.data_as(ctypes.c_void_p)


def in_c(world: hpccoll.World) -> Mode:
    c = InC(world)

    def run(program: Program, rank: int, size: int, turn: int) -> list[Array | None]:
        return [c.run(call, rank, size, turn) for call in program.calls]

    operations = ("allreduce", "broadcast", "reduce", "reducescatter", "scan", "exscan")
    return Mode("C", in_turns(run), operations, DTYPES)


def modes(world: hpccoll.World) -> list[Mode]:
    collectives = tuple(name for name in OPERATIONS if name != "sendrecv")
    return [
        Mode("NumPy, blocking", in_turns(blocking), OPERATIONS, DTYPES),
        Mode("NumPy, asynchronous", in_turns(asynchronous), OPERATIONS, DTYPES),
        Mode("NumPy, plans", planned, collectives, DTYPES),
        in_c(world),
    ]
