# SPDX-License-Identifier: Apache-2.0
"""How close is an allreduce of device memory through pinned memory and MPI to the slower of its two parts alone?

    HPCCOLL_DEVICE_MODE=staged hpccoll run -np 2 --nodes 2 python benchmarks/staging.py

Two ranks may share a GPU. An allreduce of D bytes copies D to the host and D back, and exchanges D with the other rank
in each direction. The same run measures both parts alone: D to the host and D back at once in two streams, without MPI;
D in each direction at once between pinned memories, without the GPU. Times are those of the slower rank.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from bare_gpu import Gpu
from mpi4py import MPI

import hpccoll

COMM = MPI.COMM_WORLD
PIECE = 1 << 20


def timed(call: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each call except the first; all ranks begin together."""
    samples = []
    for _ in range(repeats + 1):
        COMM.Barrier()
        began = time.perf_counter()
        call()
        samples.append(COMM.allreduce(time.perf_counter() - began, MPI.MAX))
    return samples[1:]


def variants(gpu: Gpu, nbytes: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the timed calls with their names; verify the sum first."""
    x = gpu.array(np.full(nbytes // 4, COMM.rank + 1, np.float32))
    y = gpu.array(np.zeros(nbytes // 4, np.float32))
    lower, upper = gpu.pinned(nbytes), gpu.pinned(nbytes)
    other, second = COMM.size - 1 - COMM.rank, gpu.new_stream()

    def link() -> None:
        gpu.down(lower, x.address)
        gpu.up(y.address, upper, second)
        gpu.wait()
        gpu.wait(second)

    def whole() -> None:
        COMM.Sendrecv(lower, other, recvbuf=upper, source=other)

    def pieces() -> None:
        cuts = range(0, nbytes, PIECE)
        receives = [COMM.Irecv(upper[at : at + PIECE], other) for at in cuts]
        MPI.Request.Waitall([COMM.Isend(lower[at : at + PIECE], other) for at in cuts] + receives)

    def allreduce() -> None:
        hpccoll.allreduce_async(x, hpccoll.SUM, name=f"staged {nbytes}", out=y).wait(host=True)

    allreduce()
    assert (y.values() == sum(range(1, COMM.size + 1))).all()
    yield from {"link": link, "MPI, whole": whole, "MPI, pieces": pieces, "allreduce": allreduce}.items()
    gpu.free(x.address)
    gpu.free(y.address)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    if COMM.size != 2:
        text = f"staging.py needs 2 ranks, and this job has {COMM.size}: hpccoll run -np 2 --nodes 2 python ..."
        sys.exit(text if COMM.rank == 0 else 1)
    gpu, world = Gpu(), hpccoll.init()
    for mebibytes in options.mebibytes:
        for what, call in variants(gpu, mebibytes << 20):
            seconds = timed(call, options.repeats)
            if world.rank == 0:
                mode = os.environ.get("HPCCOLL_DEVICE_MODE", "auto")
                line = {"what": what, "mode": mode, "bytes": mebibytes << 20, "seconds": seconds}
                print(json.dumps(line | {"median": statistics.median(seconds)}), flush=True)
    hpccoll.shutdown()


if __name__ == "__main__":
    main()
