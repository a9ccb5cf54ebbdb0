# SPDX-License-Identifier: Apache-2.0
"""How long does one blocking allreduce take, from 4 bytes to 64 MiB?

The arrays are fp32, in place; and fp16 and bf16 with the same number of elements, if the library has them.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np
from harness import COMM, TINY, Case, check_sum, main, random_data, size_label
from libraries import Array, Hpccoll, Library, Memcpy

FULL = [4, 64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 32 << 20, 64 << 20]
HALVES_FROM = 1 << 20  # elements


def dtypes() -> list[object]:
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        return [np.float32, np.float16]
    return [np.float32, np.float16, ml_dtypes.bfloat16]


def variants(library: Library, size: int) -> Iterator[tuple[str, str, Array, Callable[[], object]]]:
    """Yield (variant, label, array, call) for all that this library can do with `size` bytes of fp32."""
    for dtype in dtypes():
        half = np.dtype(dtype).itemsize == 2
        x = random_data(COMM.rank, size // 4, dtype)
        with suppress(NotImplementedError):
            yield np.dtype(dtype).name, size_label(size) + " as halves" * half, x, library.sum_in_place(x)
    if isinstance(library, Hpccoll):
        hc = library.hpccoll
        x = random_data(COMM.rank, size // 4)
        call = partial(hc.allreduce, x, name="x", out=x, compression=hc.compression.FP16)
        yield "float32, FP16 on the way", size_label(size), x, call


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    sizes = [4, 1 << 16] if options.size == TINY else [s for s in FULL if options.smallest <= s <= options.largest]
    for size in sizes:
        for variant, label, x, run in variants(library, size):
            if variant != "float32" and size // 4 < HALVES_FROM and options.size != TINY:
                continue

            def verify(x: Array = x, run: Callable[[], object] = run, exact: bool = variant == "float32") -> None:
                run()
                if not isinstance(library, Memcpy):
                    check_sum(x, x.size, x.dtype, 1e-5 if exact else 0.02)
                x[:] = 0  # sums in place would grow without end

            yield Case(variant, label, run, verify, x.nbytes, write=partial(np.copyto, x, x.copy()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--smallest", type=int, default=4, help="bytes of fp32")
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes of fp32")


if __name__ == "__main__":
    main(__doc__ or "", cases, add_arguments)
