# SPDX-License-Identifier: Apache-2.0
"""How long does a small allreduce take (up to 1 KiB, met before), named, unnamed, asynchronous; and a barrier?"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from harness import COMM, TINY, Case, check_sum, main, random_data, size_label
from libraries import Hpccoll, Library, Mpi
from mpi4py import MPI
from numpy.typing import NDArray


def variants(library: Library, x: NDArray[np.float32]) -> dict[str, Callable[[], object]]:
    match library:
        case Hpccoll(hpccoll=hc):
            return {
                "named": lambda: hc.allreduce(x, name="x", out=x),
                "unnamed": lambda: hc.allreduce(x, out=x),
                "asynchronous, awaited": lambda: hc.allreduce_async(x, name="x", out=x).wait(),
                "result is a new array": lambda: hc.allreduce(x, name="x"),
            }
        case Mpi():
            return {"named": lambda: COMM.Allreduce(MPI.IN_PLACE, x)}
    return {"named": library.sum_in_place(x)}


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    for size in [4] if options.size == TINY else [4, 64, 256, 1024]:
        x = random_data(COMM.rank, size // 4)
        for variant, run in variants(library, x).items():

            def verify(x: NDArray[np.float32] = x, run: Callable[[], object] = run) -> None:
                x[:] = random_data(COMM.rank, x.size)
                result = run()
                if library.name != "memcpy":
                    check_sum(result if isinstance(result, np.ndarray) else x, x.size)
                x[:] = 0

            yield Case(variant, size_label(size), run, verify, size)
    match library:
        case Hpccoll(hpccoll=hc):
            yield Case("barrier", "no data", hc.barrier, lambda: None)
        case Mpi():
            yield Case("barrier", "no data", COMM.Barrier, lambda: None)


if __name__ == "__main__":
    main(__doc__ or "", cases)
