# SPDX-License-Identifier: Apache-2.0
"""init() prints a line while MPI_Init hangs, although that holds Python's lock and cannot be interrupted."""

import ctypes
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpccoll import _core

SAYS_IN_TIME = 60


def test_a_notice_comes_while_pythons_lock_is_held() -> None:
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        with _core.Notice(0.01, "it lasts"):
            poll = ctypes.PyDLL(None).poll  # unlike CDLL it keeps the lock
            came = poll((ctypes.c_int * 2)(reading, select.POLLIN), ctypes.c_ulong(1), SAYS_IN_TIME * 1000)
        output = os.read(reading, 100) if came else b""
    finally:
        os.dup2(kept, 2)
        for descriptor in (reading, writing, kept):
            os.close(descriptor)
    assert output == b"it lasts\n"


def test_a_block_that_ends_in_time_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(KeyError), _core.Notice(1000, "it lasts"):
        raise KeyError
    assert time.monotonic() - began < 500
    assert capfd.readouterr().err == ""


@pytest.mark.timeout(120)
def test_init_says_that_mpi_init_hangs(build_c: Callable[..., Path]) -> None:
    library = str(build_c("tests/tools/doctor/hang.c", flags=("-shared",), name="hang.so"))
    with subprocess.Popen(
        [sys.executable, "-c", "import hpccoll; hpccoll.init()"],
        env={**os.environ, "LD_PRELOAD": library, "HPCCOLL_STALL_WARNING": "0.1"}, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr
            output = process.stderr.readline()
        finally:
            process.kill()
    assert output.startswith(f"hpccoll: rank 0 on {os.uname().nodename}: MPI_Init has not returned after 0.1 s")
    assert "`hpccoll doctor`" in output
