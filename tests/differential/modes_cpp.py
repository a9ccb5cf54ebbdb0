# SPDX-License-Identifier: Apache-2.0
"""The methods of hpccoll.hpp in the Worlds that Python has made: driver.cpp makes each call."""

import ctypes
import os
from functools import partial
from typing import Any

from differential import process_sets
from differential.modes import Mode, Way
from differential.modes_c import CODES, OF_ALL, Memory, code_of, modes_of, pointer_of, row_of, way_of
from differential.modes_numpy import neighbours


class Arguments(ctypes.Structure):
    """Call of driver.cpp."""

    _fields_ = (
        ("operation", ctypes.c_char_p), ("form", ctypes.c_char_p), ("dtype", ctypes.c_int), ("op", ctypes.c_int),
        ("root", ctypes.c_int), ("factors", ctypes.c_double * 2), ("name", ctypes.c_char_p), ("row", ctypes.c_int64),
        ("splits", ctypes.POINTER(ctypes.c_int64)), ("n_splits", ctypes.c_int64), ("in", ctypes.c_void_p),
        ("in_count", ctypes.c_int64), ("out", ctypes.c_void_p), ("out_count", ctypes.c_int64),
        ("peers", ctypes.c_int * 2),
    )  # fmt: skip


def run(driver: Any, memory: Memory, world: ctypes.c_void_p, form: bytes) -> None:
    unit, call = memory.unit, memory.unit.calls[0]
    x, out, name = memory.inputs[0], memory.outputs[0], (call.name or "").encode()
    splits = (ctypes.c_int64 * unit.size)(*call.splits(unit.rank, unit.size))
    has_result = memory.wanted[0] is not None
    text = driver.run_call(
        ctypes.byref(
            Arguments(
                call.operation.encode(), form, CODES[call.dtype.upper()], code_of(call), call.root, call.factors,
                name or None, row_of(call), splits, unit.size, x.ctypes.data, x.size, out.ctypes.data,
                out.size if has_result else 0, neighbours(unit),
            )
        ),
        world,
    )  # fmt: skip
    if text is not None:
        raise RuntimeError(text.decode())


def ways() -> list[Way]:
    driver = ctypes.CDLL(os.path.join(os.environ["DIFFERENTIAL_DRIVERS"], "cpp.so"))
    driver.run_call.restype, driver.open_world.restype = ctypes.c_char_p, ctypes.c_void_p
    worlds = process_sets.all_worlds().items()
    found = {its: ctypes.c_void_p(driver.open_world(pointer_of(world))) for its, world in worlds if world}
    return [way_of(partial(run, driver, form=form), found) for form in (b"", b"async", b"init")]


def modes() -> list[Mode]:
    return modes_of("C++", ways(), OF_ALL, OF_ALL)
