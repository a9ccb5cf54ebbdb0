# SPDX-License-Identifier: Apache-2.0
"""Do the stages of the hierarchy overlap? One chunk, which goes through node, network, node, against many.

The ranks of this machine act as two nodes, so that both kinds of transport run. Stages that share cores cannot overlap:
this needs more than one core per rank, or a wire (`hosts.py --question hierarchy`).
"""

import argparse
from collections.abc import Callable, Iterator

from harness import COMM, TINY, Case, check_sum, main, random_data, size_label
from libraries import Hpccoll

ONE_CHUNK = 1 << 30  # as large as the segment allows


def cases(library: Hpccoll, options: argparse.Namespace) -> Iterator[Case]:
    x = random_data(COMM.rank, 1 << (14 if options.size == TINY else 17))  # 512 KiB: the largest chunk there is
    for variant, chunk in (
        ("one chunk", ONE_CHUNK),
        ("chunks of 128 KiB", 128 << 10),
        ("chunks of 64 KiB", 64 << 10),
    ):
        library.restart(nodes=options.nodes, chunk_bytes=chunk)
        run = library.sum_in_place(x)

        def verify(run: Callable[[], object] = run) -> None:
            x[:] = random_data(COMM.rank, x.size)
            run()
            check_sum(x, x.size)
            x[:] = 0

        yield Case(variant, size_label(x.nbytes), run, verify, x.nbytes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", default="2", help='as HPCCOLL_NODES; "": the machines are the nodes')


if __name__ == "__main__":
    main(__doc__ or "", cases, add_arguments)
