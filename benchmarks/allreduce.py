# SPDX-License-Identifier: Apache-2.0
"""How long does one blocking allreduce take, from 4 bytes to 64 MiB?

fp32 in place, and fp16 and bf16 of as many elements where the library has them.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from harness import COMM, TINY, Case, check_sum, main, random_data, size_label
from libraries import Library, Memcpy

FULL = [4, 64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 32 << 20, 64 << 20]
HALVES_FROM = 1 << 20  # elements


def dtypes() -> list[object]:
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        return [np.float32, np.float16]
    return [np.float32, np.float16, ml_dtypes.bfloat16]


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    sizes = [4, 1 << 16] if options.size == TINY else [s for s in FULL if s <= options.largest]
    for size in sizes:
        for dtype in dtypes():
            half = np.dtype(dtype).itemsize == 2
            if half and (size // 4 < HALVES_FROM) != (options.size == TINY):
                continue
            x = random_data(COMM.rank, size // 4, dtype)
            try:
                run = library.sum_in_place(x)
            except NotImplementedError:
                continue

            def verify(x: np.ndarray = x, run=run, half: bool = half) -> None:  # type: ignore[no-untyped-def]
                run()
                if not isinstance(library, Memcpy):
                    check_sum(x, x.size, x.dtype, 0.02 if half else 1e-5)
                x[:] = 0  # sums in place would grow without end

            yield Case(
                np.dtype(dtype).name, size_label(size) + (" as halves" if half else ""), run, verify, x.nbytes
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes of fp32")


if __name__ == "__main__":
    main(__doc__ or "", cases, add_arguments)
