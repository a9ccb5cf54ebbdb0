# SPDX-License-Identifier: Apache-2.0
"""How long does a blocking call without a name take, for each operation with an array and for sendrecv?

The results are arrays of their own. A size is that of the array that one rank gives to all others, or gets from them.
`hpccoll bench` compares the same calls with an MPI's.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from harness import COMM, TINY, Case, main, random_data, size_label
from libraries import Array, Hpccoll, Library

SIZES = [2 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20]


def calls(library: Library, x: Array) -> dict[str, tuple[Callable[[], object], Array, Callable[[Array], Array]]]:
    """Return the call of each operation, its result, and the result that it must have of the arrays of all ranks."""
    assert isinstance(library, Hpccoll)
    hc, rank, size = library.hpccoll, COMM.rank, COMM.size
    whole, share, every = np.empty_like(x), np.empty(x.size // size, x.dtype), np.empty((size, x.size), x.dtype)
    mine = slice(rank * share.size, (rank + 1) * share.size)
    after, before = (rank + 1) % size, (rank - 1) % size
    return {
        "broadcast": (partial(hc.broadcast, x, 0, out=whole), whole, lambda xs: xs[0]),
        "reduce": (partial(hc.reduce, x, root=0, out=whole), whole, lambda xs: xs.sum(0) if rank == 0 else whole),
        "allgather": (partial(hc.allgather, x[None], out=every), every, lambda xs: xs),
        "gather": (partial(hc.gather, x[None], 0, out=every), every, lambda xs: xs if rank == 0 else every),
        "scatter": (partial(hc.scatter, x, 0, out=share), share, lambda xs: xs[0, mine]),
        "alltoall": (partial(hc.alltoall, x, out=whole), whole, lambda xs: xs[:, mine].ravel()),
        "reducescatter": (partial(hc.reducescatter, x, out=share), share, lambda xs: xs.sum(0)[mine]),
        "scan": (partial(hc.scan, x, out=whole), whole, lambda xs: xs[: rank + 1].sum(0)),
        "exscan": (partial(hc.exscan, x, out=whole), whole, lambda xs: xs[:rank].sum(0, x.dtype)),
        "sendrecv": (partial(hc.sendrecv, x, after, whole, before), whole, lambda xs: xs[before]),
    }


def case(name: str, x: Array, run: Callable[[], object], result: Array, wanted: Callable[[Array], Array]) -> Case:
    def verify() -> None:
        x[:] = random_data(COMM.rank, x.size)
        run()
        np.testing.assert_allclose(result, wanted(np.stack(COMM.allgather(x))), rtol=1e-5, atol=1e-5)

    return Case(name, size_label(x.nbytes), run, verify, x.nbytes, write=partial(np.copyto, x, x.copy()))


def cases(library: Library, options: argparse.Namespace) -> Iterator[Case]:
    for size in [1 << 10] if options.size == TINY else SIZES:
        x = random_data(COMM.rank, size // 4 // COMM.size * COMM.size)
        for name, how in calls(library, x).items():
            yield case(name, x, *how)


if __name__ == "__main__":
    main(__doc__ or "", cases)
