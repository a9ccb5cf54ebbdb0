# SPDX-License-Identifier: Apache-2.0
"""Copies into and out of shared memory: every size and alignment, nothing beside them, and the fence."""

import ctypes
import mmap
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MOST, PAGE, LINE = 4096, mmap.PAGESIZE, 64
STORES = {"plain": 0, "stream": 1}


class Guarded:
    """`MOST` bytes and more between two pages that nobody may touch."""

    def __init__(self) -> None:
        self.pages = MOST // PAGE + 2
        self.memory = mmap.mmap(-1, (self.pages + 2) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (base, base + (self.pages + 1) * PAGE):
            assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
        self.start, self.end = base + PAGE, base + (self.pages + 1) * PAGE
        whole = (ctypes.c_uint8 * (self.pages * PAGE)).from_address(self.start)
        self.bytes = np.ctypeslib.as_array(whole)


@pytest.fixture(scope="module")
def regions() -> Iterator[tuple[Guarded, Guarded]]:
    yield Guarded(), Guarded()


@pytest.fixture(params=STORES)
def copy(request: pytest.FixtureRequest, host: Any) -> Callable[[int, int, int], None]:
    function = host.library.hc_shared_copy
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return lambda to, source, n: function(to, source, n, STORES[request.param])


def alignments(n: int) -> list[tuple[int, int]]:
    """Distances of the ends of destination and source from their guard pages: each of 64 of both for some sizes."""
    if n in (0, 1, 63, 64, 127, 255, 256, 257, 300, 511, 1000, 4096):
        return [(to, source) for to in range(LINE) for source in range(0, LINE, 7)]
    return [(0, 0), (n * 7 % LINE, 0), (0, n * 13 % LINE), (n * 5 % LINE, n * 11 % LINE)]


def test_every_size_at_the_end_of_its_pages(copy: Any, regions: tuple[Guarded, Guarded]) -> None:
    """Compared with NumPy's copy; a byte beyond source or destination is a fault, one within the page is seen."""
    to, source = regions
    source.bytes[:] = np.random.default_rng(5).integers(0, 256, source.bytes.size, np.uint8)
    for n in range(MOST + 1):
        for before_end, source_before_end in alignments(n):
            to.bytes[:] = 0x5A
            expected = to.bytes.copy()
            last, source_last = to.bytes.size - before_end, source.bytes.size - source_before_end
            expected[last - n : last] = source.bytes[source_last - n : source_last]
            copy(to.end - before_end - n, source.end - source_before_end - n, n)
            assert np.array_equal(to.bytes, expected), (n, before_end, source_before_end)


def test_every_size_at_the_start_of_its_pages(copy: Any, regions: tuple[Guarded, Guarded]) -> None:
    to, source = regions
    source.bytes[:] = np.arange(source.bytes.size) % 251
    for n in range(MOST + 1):
        to.bytes[:] = 0x5A
        at = n * 3 % LINE if n % 2 else 0
        copy(to.start + at, source.start, n)
        assert np.array_equal(to.bytes[at : at + n], source.bytes[:n]), n
        assert (to.bytes[:at] == 0x5A).all()
        assert (to.bytes[at + n :] == 0x5A).all()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="streaming stores of x86")
@pytest.mark.parametrize("name", ["avx512", "avx2", "portable"])
def test_streaming_stores_are_fenced(build_c: Callable[..., Path], name: str) -> None:
    """In the compiled code: no way from a streaming store to the function's end without the fence."""
    flags = ("-shared", "-O3", "-DNDEBUG")
    library = build_c(f"ext/transport/kernels/{name}.c", "ext/core/reserve.c", flags=flags)
    text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
    functions = dict(re.findall(r"^[0-9a-f]+ <(\w+)[^>]*>:\n((?:.+\n)+)", text, re.MULTILINE))
    streaming = {own: code for own, code in functions.items() if re.search(r"\bv?movnt", code)}
    assert streaming, "no streaming store was compiled"
    for own, code in streaming.items():
        fenced = "movnt"
        for line in code.splitlines():
            if re.search(r"\bv?movnt", line):
                fenced = "no"
            elif "sfence" in line:
                fenced = "yes"
            elif re.search(r"\bret", line):
                assert fenced != "no", f"{own}: {line}"
        assert "sfence" in code, own
