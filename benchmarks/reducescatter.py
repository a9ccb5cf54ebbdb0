# SPDX-License-Identifier: Apache-2.0
"""How long does a blocking reducescatter take, from 1 to 64 MiB of fp32, each rank's share into memory of its own?

The ranks of this machine act as two nodes (`--nodes`), so that the wire's part is there; an allreduce of the same array
stands beside it, which sends twice as much.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from harness import COMM, TINY, Case, main, random_data, size_label
from libraries import Array, Hpccoll, Mpi

SIZES = [1 << 20, 4 << 20, 16 << 20, 64 << 20]


def cases(library: Hpccoll | Mpi, options: argparse.Namespace) -> Iterator[Case]:
    if isinstance(library, Hpccoll):
        library.restart(nodes=options.nodes)
    for size in [1 << 12] if options.size == TINY else SIZES:
        x = random_data(COMM.rank, size // 4)
        share = np.array_split(np.arange(x.size), COMM.size)[COMM.rank]
        out = np.empty(share.size, x.dtype)
        run = library.sum_to_shares(x, out)

        def verify(run: Callable[[], object] = run, x: Array = x, share: Array = share, out: Array = out) -> None:
            run()
            inputs = [random_data(rank, x.size)[share].astype(np.float64) for rank in range(COMM.size)]
            assert (np.abs(out - sum(inputs)) <= 1e-5 * sum(np.abs(part) for part in inputs)).all()

        yield Case("reducescatter", size_label(size), run, verify, x.nbytes)
        y = np.zeros_like(x)
        yield Case("allreduce", size_label(size), library.sum_in_place(y), lambda: None, x.nbytes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", default="2", help='as HPCCOLL_NODES; "": the machines are the nodes')


if __name__ == "__main__":
    main(__doc__ or "", cases, add_arguments)
