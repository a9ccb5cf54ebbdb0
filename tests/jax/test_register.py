# SPDX-License-Identifier: Apache-2.0
"""What an XLA without a function for that in Python is told: TensorFlow's has tests in tests/tensorflow/compiled.py."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from hpccoll import _xla

ROOT = Path(__file__).resolve().parents[2]
OLD = """
#include "xla/ffi.h"
static hc_ffi_api table = {.size = sizeof table, .version = {.major = 0, .minor = 0}};
const hc_ffi_api *old(void) { return &table; }
static void *refuse(hc_ffi_registration *r) { return r; }
static hc_ffi_api sullen = {.size = sizeof sullen, .version = {.major = 0, .minor = 1}, .handler_register = refuse};
const hc_ffi_api *refuses(void) { return &sullen; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One that is loaded, with an XLA that is too old, and one that takes nothing."""
    folder = tmp_path_factory.mktemp("old")
    source, made = folder / "old.c", folder / "libold.so"
    source.write_text(OLD)
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{ROOT / 'ext'}", "-o", made, source], check=True, timeout=60)
    ctypes.CDLL(str(made))
    return str(made)


def test_an_xla_that_is_too_old(library: str) -> None:
    assert _xla.register(library, "old") == "version 0.0 of its XLA's interface has no futures for custom calls"


def test_an_xla_that_refuses(library: str) -> None:
    assert _xla.register(library, "refuses") == "its XLA refuses the custom call hpccoll.nothing"


def test_a_library_without_xla(library: str) -> None:
    assert "has no table of functions" in _xla.register(library, "none")


def test_a_library_that_is_not_loaded() -> None:
    assert _xla.register("libnone.so", "none") == "libnone.so is not loaded in this process"
