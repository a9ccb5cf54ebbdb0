# SPDX-License-Identifier: Apache-2.0
"""How much slower does a loop of bf16 matrix products get while hpccoll moves gradients on the same GPU?

    python benchmarks/beside.py                  one rank
    python benchmarks/beside.py --work copies    without PyTorch: copies inside the GPU instead of products

Moving bytes takes memory bandwidth from the computation. This cost is unavoidable; it is measured in the same run, as
the rate of a copy inside the GPU. A staged batch of D bytes is packed (2 D), copied to the host (D) and back (D), and
unpacked (2 D); with NCCL and one rank it is packed and unpacked (4 D).
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from bare_gpu import Gpu

import hpccoll

TENSORS = 16
PASSES = {"staged": 6}
OTHERWISE = 4
"""Reads and writes of device memory per byte of a batch, by device mode."""


class Products:
    """The matrix products of a training step, in a separate stream."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        import torch

        self.torch, self.stream = torch, torch.cuda.Stream()
        self.a, self.b = (
            torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2)
        )  # zeros would be faster than any data
        self.c = torch.empty_like(self.a)
        torch.cuda.synchronize()

    def launch(self, n: int) -> Callable[[], bool]:
        """Launch n products; return a function that returns whether all are done."""
        with self.torch.cuda.stream(self.stream):
            for _ in range(n):
                self.torch.matmul(self.a, self.b, out=self.c)
            end = self.torch.cuda.Event()
            end.record(self.stream)
        return lambda: bool(end.query())


class Copies:
    """Copies inside the GPU in place of products."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.gpu, self.bytes, self.stream = gpu, 2 * size * size, gpu.new_stream()
        self.at = [gpu.allocate(self.bytes) for _ in range(2)]

    def launch(self, n: int) -> Callable[[], bool]:
        gpu, stream = self.gpu, self.gpu.stream
        gpu.stream = self.stream
        for _ in range(n):
            gpu.copy(self.at[1], self.at[0], self.bytes)
        gpu.stream = stream
        return lambda: gpu.library.cuStreamQuery(self.stream) == 0


def seconds_of(done: Callable[[], bool], meanwhile: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds until all is done, and how often `meanwhile` was called: at least once."""
    began, calls = time.perf_counter(), 0
    while not calls or not done():
        meanwhile()
        calls += 1
    return time.perf_counter() - began, calls


def rate_of_a_copy(gpu: Gpu, nbytes: int) -> float:
    """Return the bytes per second that a copy inside the GPU reads and writes."""
    source, to, best = gpu.allocate(nbytes), gpu.allocate(nbytes), 0.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(10):
            gpu.copy(to, source, nbytes)
        gpu.wait()
        best = max(best, 20 * nbytes / (time.perf_counter() - began))
    gpu.free(source)
    gpu.free(to)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=("products", "copies"), default="products")
    parser.add_argument("--size", type=int, default=8192, help="rows and columns of a matrix")
    parser.add_argument("--products", type=int, default=200, help="in a loop")
    parser.add_argument("--mebibytes", type=int, default=64, help="of a batch")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    gpu, world = Gpu(), hpccoll.init()
    if world.size != 1:
        sys.exit(f"beside.py needs 1 rank, and this job has {world.size}" if world.rank == 0 else 1)
    work = {"products": Products, "copies": Copies}[options.work](gpu, options.size)
    each = (options.mebibytes << 20) // 4 // TENSORS
    gradients = [gpu.array(np.full(each, i, np.float32)) for i in range(TENSORS)]

    def reduce() -> None:
        hpccoll.allreduce_async(gradients, hpccoll.AVERAGE, name="gradients", out=gradients).wait(host=True)

    reduce()
    assert all((x.values() == i).all() for i, x in enumerate(gradients))
    mode = os.environ.get("HPCCOLL_DEVICE_MODE", "auto")
    moved = (options.mebibytes << 20) * PASSES.get(mode, OTHERWISE)
    rate = rate_of_a_copy(gpu, options.mebibytes << 20)
    seconds_of(work.launch(options.products), lambda: None)  # the first is not counted
    for _ in range(options.repeats):
        alone, _ = seconds_of(work.launch(options.products), lambda: None)
        beside, batches = seconds_of(work.launch(options.products), reduce)
        line = {"what": f"{options.work} beside batches", "mode": mode, "alone": alone, "beside": beside}
        line |= {
            "batches": batches,
            "bytes per batch": options.mebibytes << 20,
            "price": batches * moved / rate,
        }
        print(json.dumps(line), flush=True)
    hpccoll.shutdown()


if __name__ == "__main__":
    main()
