# SPDX-License-Identifier: Apache-2.0
"""The procedures of the Fortran module in the Worlds that Python has made: driver.f90 makes each call."""

import ctypes
import os
from functools import partial
from typing import Any

import numpy as np
from differential.drivers import case_of
from differential.modes import Array, Mode, Way
from differential.modes_c import KINDS, LIBRARY, OF_ALL, Memory, code_of, modes_of, way_of, worlds
from differential.modes_numpy import neighbours


def columns_and_rows(x: Array, trailing: tuple[int, ...] | None) -> Any:
    """Return the shape in Fortran, whose rows run along the last dimension."""
    columns = int(np.prod(trailing or (1,)))
    return (ctypes.c_int * 2)(columns, x.shape[0] if x.ndim else 1)


def run(driver: Any, memory: Memory, world: ctypes.c_void_p, form: str) -> None:
    unit, call = memory.unit, memory.unit.calls[0]
    x, out, name, status = memory.inputs[0], memory.outputs[0], (call.name or "").encode(), ctypes.c_int()
    driver.run_call(
        -1 if call.operation == "sendrecv" else case_of(call.operation, form), KINDS.index(call.dtype) + 1,
        ctypes.c_void_p(x.ctypes.data), columns_and_rows(x, call.trailing),
        ctypes.c_void_p(out.ctypes.data), columns_and_rows(out, call.trailing),
        code_of(call), call.root, (ctypes.c_double * 2)(*call.factors),
        (ctypes.c_int64 * unit.size)(*call.splits(unit.rank, unit.size)), (ctypes.c_int * 2)(*neighbours(unit)),
        name, len(name), ctypes.byref(world), ctypes.byref(status),
    )  # fmt: skip
    if status.value != 0:
        raise RuntimeError(f"{status.value}: {LIBRARY.hpccoll_last_error().decode()}")


def ways() -> list[Way]:
    driver, found = ctypes.CDLL(os.path.join(os.environ["DIFFERENTIAL_DRIVERS"], "fortran.so")), worlds()
    return [way_of(partial(run, driver, form=form), found) for form in ("", "async", "init")]


def modes() -> list[Mode]:
    return modes_of("Fortran", ways(), OF_ALL, OF_ALL)
