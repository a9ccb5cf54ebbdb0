# SPDX-License-Identifier: Apache-2.0
"""How close are the kernels to memcpy: GB/s of bytes read and written, for each vector instruction set of this machine?

One process runs. memcpy of the same number of bytes is measured beside every case, so that other load affects both.
"""

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import ml_dtypes
import native
import numpy as np
from numpy.typing import NDArray

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 complex128"
DTYPE = {name: code for code, name in enumerate(DTYPES.split())}
REDUCTIONS = "AVERAGE SUM ADASUM MIN MAX PRODUCT BAND BOR BXOR LAND LOR LXOR"
REDUCTION = {name: code for code, name in enumerate(REDUCTIONS.split())}
SIZES = (1 << 10, 64 << 10, 1 << 20, 64 << 20)

# reduction, sources, their dtype, the result's
REDUCE = [
    *(("SUM", n, d, d) for d in ("float32", "float16", "bfloat16") for n in (2, 3, 4)),
    ("SUM", 2, "float16", "float32"),
    ("SUM", 2, "float64", "float64"),
    ("SUM", 2, "int32", "int32"),
    ("MAX", 2, "float32", "float32"),
    ("MIN", 2, "int64", "int64"),
    ("MAX", 2, "uint8", "uint8"),
    ("PRODUCT", 2, "uint8", "uint8"),
    ("PRODUCT", 2, "int64", "int64"),
    ("PRODUCT", 2, "complex64", "complex64"),
    ("PRODUCT", 2, "complex128", "complex128"),
    ("LOR", 2, "bool", "bool"),
]
FLOATS = ("float16", "bfloat16", "float32", "float64")
CONVERT = [(a, b) for a in FLOATS for b in FLOATS if a != b]


Repeat = Callable[[int], object]  # runs this number of calls


@dataclass
class Result:
    kernels: str
    what: str
    bytes: int  # read and written
    seconds: list[float]
    memcpy: list[float]

    @property
    def rate(self) -> float:
        return self.bytes / statistics.median(self.seconds) / 1e9

    @property
    def memcpy_rate(self) -> float:
        return self.bytes / statistics.median(self.memcpy) / 1e9


def dtype_of(name: str) -> np.dtype[np.generic]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def random_array(name: str, count: int, seed: int) -> NDArray[np.generic]:
    rng = np.random.default_rng(seed)
    if name.startswith(("float", "bfloat", "complex")):
        return rng.standard_normal(count, dtype=np.float32).astype(dtype_of(name))
    return rng.integers(0, 2 if name == "bool" else 100, count).astype(dtype_of(name))


def time_each(run: Repeat, other: Repeat, most: float) -> tuple[list[float], list[float]]:
    """Return the seconds per call of each, measured in turn."""
    start = time.perf_counter()
    run(1)
    times = max(1, int(2e-4 / max(time.perf_counter() - start, 1e-8)))
    samples: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + most
    while time.perf_counter() < end or len(samples[0]) < 5:
        for which, call in enumerate((run, other)):
            start = time.perf_counter()
            call(times)
            samples[which].append((time.perf_counter() - start) / times)
    return samples


class Bench:
    def __init__(self, library: ctypes.CDLL, kernels: str, most: float) -> None:
        self.library, self.kernels, self.most = library, kernels, most

    def measure(self, what: str, run: Repeat, touched: int) -> Result:
        a, b = np.ones(touched // 2, np.uint8), np.ones(touched // 2, np.uint8)

        to, source, size = (
            ctypes.c_void_p(a.ctypes.data),
            ctypes.c_void_p(b.ctypes.data),
            ctypes.c_size_t(a.size),
        )

        def copy(times: int) -> None:
            self.library.repeat_copy(times, to, source, size)

        seconds, memcpy = time_each(run, copy, self.most)
        return Result(self.kernels, what, touched, seconds, memcpy)

    def reduce(self, reduction: str, n_from: int, from_name: str, to_name: str, size: int) -> Result:
        n = size // dtype_of(from_name).itemsize
        sources = [random_array(from_name, n, q) for q in range(n_from)]
        result = np.zeros(n, dtype_of(to_name))
        pointers = (ctypes.c_void_p * n_from)(*(x.ctypes.data for x in sources))

        def run(times: int) -> None:
            self.library.repeat_reduce(
                times, ctypes.c_void_p(result.ctypes.data), DTYPE[to_name], pointers, n_from,
                DTYPE[from_name], REDUCTION[reduction], ctypes.c_int64(n),
            )  # fmt: skip

        run(1)
        self.verify(reduction, sources, result)
        arrow = from_name if from_name == to_name else f"{from_name}->{to_name}"
        what = f"{reduction} {arrow} x{n_from}"
        return self.measure(f"{what:36} {size >> 10:6} KiB", run, sum(x.nbytes for x in [*sources, result]))

    @staticmethod
    def verify(reduction: str, sources: list[NDArray[np.generic]], result: NDArray[np.generic]) -> None:
        function = {
            "SUM": np.add,
            "MIN": np.minimum,
            "MAX": np.maximum,
            "PRODUCT": np.multiply,
            "LOR": np.logical_or,
        }
        half = sources[0].dtype.itemsize == 2
        wide = [x.astype(np.float32) if half else x for x in sources]
        expected = wide[0]
        for x in wide[1:]:
            expected = function[reduction](expected, x)
        np.testing.assert_array_equal(result, expected.astype(result.dtype))

    def convert(self, from_name: str, to_name: str, size: int) -> Result:
        n = size // dtype_of(from_name).itemsize
        source, result = random_array(from_name, n, 1), np.zeros(n, dtype_of(to_name))

        def run(times: int) -> None:
            self.library.repeat_convert(
                times, ctypes.c_void_p(result.ctypes.data), DTYPE[to_name], ctypes.c_void_p(source.ctypes.data),
                DTYPE[from_name], ctypes.c_int64(n),
            )  # fmt: skip

        run(1)
        np.testing.assert_array_equal(result, source.astype(np.float64).astype(result.dtype))
        return self.measure(f"{f'{from_name}->{to_name}':36} {size >> 10:6} KiB", run, source.nbytes + result.nbytes)

    def cases(self, sizes: tuple[int, ...]) -> Iterator[Result]:
        for size in sizes:
            for case in REDUCE:
                yield self.reduce(*case, size)
            for pair in CONVERT:
                yield self.convert(*pair, size)


def report(r: Result) -> None:
    quick, _, slow = statistics.quantiles(r.seconds, n=4)
    low, high = r.bytes / slow / 1e9, r.bytes / quick / 1e9
    print(f"{r.kernels:9} {r.what} {r.rate:8.1f} GB/s ({low:.1f} .. {high:.1f})  memcpy {r.memcpy_rate:7.1f}  "
          f"time/memcpy {r.memcpy_rate / r.rate:5.2f}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="*", default=["avx512", "avx2", "portable"])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes of a source")
    parser.add_argument("--seconds", type=float, default=0.05, help="time spent on each case")
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--out", type=Path, help="append the results to this file, a JSON line each")
    options = parser.parse_args()
    program = native.build(options.compiler, "kernels", "transport/kernels/*.c core/reserve.c", "-fPIC", "-shared")
    library = ctypes.CDLL(str(program))
    for name in options.kernels:
        if library.hc_kernels_select(name.encode()) != 0:
            print(f"{name}: not on this processor")
            continue
        for result in Bench(library, name, options.seconds).cases(tuple(options.sizes)):
            report(result)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
