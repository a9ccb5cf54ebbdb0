# SPDX-License-Identifier: Apache-2.0
"""How long do a small allreduce (up to 1 KiB, known to the ranks) in all forms and a barrier take?"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

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
                "persistent": hc.allreduce_init(x, out=x),
            }
        case Mpi():
            calls: dict[str, Callable[[], object]] = {"named": lambda: COMM.Allreduce(MPI.IN_PLACE, x)}
            calls["unnamed"] = calls["named"]
            return calls | started({"persistent": "Allreduce_init"}, MPI.IN_PLACE, x)
    return {"named": library.sum_in_place(x)}


def started(names: dict[str, str], *arguments: object) -> dict[str, Callable[[], object]]:
    """Return MPI's persistent operations, if this MPI has them (from MPI 4.0 on)."""
    calls: dict[str, Callable[[], object]] = {}
    for variant, name in names.items():
        try:
            request = getattr(COMM, name)(*arguments)
        except (NotImplementedError, MPI.Exception):
            continue
        calls[variant] = partial(start_and_wait, request)
    return calls


def start_and_wait(request: MPI.Prequest) -> None:
    request.Start()
    request.Wait()


def barriers(library: Library) -> dict[str, Callable[[], object]]:
    match library:
        case Hpccoll(hpccoll=hc):
            return {"barrier": hc.barrier, "persistent barrier": hc.barrier_init()}
        case Mpi():
            return {"barrier": COMM.Barrier, **started({"persistent barrier": "Barrier_init"})}
    return {}


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

            write = partial(np.copyto, x, random_data(COMM.rank, x.size))
            yield Case(variant, size_label(size), run, verify, size, write=write)
    for variant, run in barriers(library).items():
        yield Case(variant, "no data", run, lambda: None)


if __name__ == "__main__":
    main(__doc__ or "", cases)
