# SPDX-License-Identifier: Apache-2.0
"""How close are the pack kernels to one copy of the same bytes: GB/s read and written, on this machine's GPU?

One process uses one device. A copy inside the device and a loop of copies, one per tensor, are measured beside every
case; so are PyTorch's functions for it, torch._foreach_copy_ and torch.cat, if PyTorch finds a GPU. Every case is
verified before it is timed. HPCCOLL_CUDA_LIBRARY may name another driver (the tests' fake one).
"""

import argparse
import ctypes
import itertools
import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bare_gpu import Gpu
from packer import PTX, SOURCES, Order, Tensor
from shapes import resnet50

from hpccoll import config

ROOT = Path(__file__).resolve().parents[1]
CODES = {"float16": 9, "float32": 11}
RESNET = [math.prod(shape) for _, shape in resnet50()]
SETS = {
    "resnet50": RESNET,
    "2000 small": [1024] * 2000,
    "gigabytes": RESNET * 40,  # 4.1 GB of float32
    "1 MiB": [1 << 18],
    "16 MiB": [1 << 22],
    "tiny": [5, 20000, 0, 7],
}


@dataclass
class Result:
    set: str
    buffer: str
    what: str
    bytes: int  # read and written
    seconds: list[float]

    @property
    def rate(self) -> float:
        return self.bytes / statistics.median(self.seconds) / 1e9

    def line(self, best: "Result") -> str:
        took = f"{statistics.median(self.seconds) * 1e6:10.1f} us {self.rate:8.1f} GB/s"
        share = f"{self.rate / best.rate:5.2f} of one copy"
        return f"{self.set:>12} float32 <-> {self.buffer}  {self.what:>14}: {took}  {share}"


class Device(Gpu):
    """The GPU, and the kernels of this source tree."""

    def __init__(self) -> None:
        super().__init__()
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "pack.so")
            sources = [file for pattern in SOURCES for file in ROOT.glob(pattern)]
            flags = ["-std=c11", "-D_GNU_SOURCE=", "-O2", "-shared", "-fPIC", f"-I{ROOT}/ext", "-ldl"]
            subprocess.run(["cc", *map(str, sources), *flags, "-o", str(library)], check=True)
            self.pack = ctypes.CDLL(str(library))
        self.table, self.packer = ctypes.create_string_buffer(1 << 16), ctypes.create_string_buffer(1 << 13)
        named = (config.read().cuda_library or "libcuda.so.1").encode()
        assert self.pack.hc_driver_open(self.table, named) == 0
        assert self.pack.hc_packer_open(self.packer, self.table, str(PTX).encode()) == 0, self.packer.raw

    def launch(self, order: Order) -> None:
        """Launch a kernel; while both tables are in use, try again until one is free."""
        while status := self.pack.hc_pack_launch(self.packer, ctypes.byref(order), self.stream):
            assert status == 1, bytes(self.packer).replace(b"\0", b"")


def places(counts: Sequence[int], itemsize: int) -> list[int]:
    """Return the first element of each tensor in the buffer, and the end of the last one."""
    per = 16 // itemsize
    return [0, *itertools.accumulate(-(-n // per) * per for n in counts)]


def timed(wait: Callable[[], object], call: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds per call in each of several rounds; each round waits for the device once."""
    samples = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        for _ in range(10):
            call()
        wait()
        samples.append((time.perf_counter() - began) / 10)
    return samples[1:]


def ask(device: Device, name: str, buffer_type: str, repeats: int) -> list[Result]:
    """Pack and unpack a set of float32 tensors: verify, then time beside the copies."""
    counts, itemsize = SETS[name], np.dtype(buffer_type).itemsize
    starts = places(counts, itemsize)
    spaced = places([n + 128 for n in counts], 4)  # tensors with gaps between them
    tensors, buffer = device.allocate(4 * spaced[-1]), device.allocate(4 * starts[-1])
    values = np.random.default_rng(1).standard_normal(spaced[-1], np.float32)
    device.put(tensors, values)
    table = (Tensor * len(counts))(*((tensors + 4 * at, n) for at, n in zip(spaced, counts, strict=False)))
    pack, unpack = (
        Order(table, len(counts), CODES["float32"], CODES[buffer_type], direction, 1.0, 1.0, buffer)
        for direction in (0, 1)
    )
    device.launch(pack)
    packed = device.get(np.empty(starts[-1], buffer_type), buffer)
    device.put(tensors, np.zeros_like(values))
    device.launch(unpack)
    back = device.get(np.empty_like(values), tensors)
    for at, place, n in zip(spaced, starts, counts, strict=False):
        expected = values[at : at + n].astype(buffer_type)
        assert (packed[place : place + n] == expected).all(), (name, buffer_type, "pack", at)
        assert (back[at : at + n] == expected.astype(np.float32)).all(), (name, buffer_type, "unpack", at)
    nbytes = sum(counts) * (4 + itemsize)
    half = nbytes // 2  # as many bytes read and written

    def loop() -> None:
        for at, place, n in zip(spaced, starts, counts, strict=False):
            if n:
                device.copy(buffer + place * 4, tensors + 4 * at, 4 * n)

    calls: dict[str, Callable[[], object]] = {
        "one copy": lambda: device.copy(buffer, tensors, half),
        "pack": lambda: device.launch(pack),
        "unpack": lambda: device.launch(unpack),
    }
    if buffer_type == "float32":
        calls["loop of copies"] = loop
    results = [
        Result(name, buffer_type, what, nbytes, timed(device.wait, call, repeats)) for what, call in calls.items()
    ]
    device.free(tensors)
    device.free(buffer)
    if torch := torch_with_a_gpu():
        for what, call in torch_calls(torch, counts, buffer_type).items():
            results.append(Result(name, buffer_type, what, nbytes, timed(torch.cuda.synchronize, call, repeats)))
    return results


def torch_with_a_gpu() -> Any:
    """Return PyTorch if it finds a GPU, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def torch_calls(
    torch: Any, counts: Sequence[int], buffer_type: str, device: str = "cuda"
) -> dict[str, Callable[[], object]]:
    """Return PyTorch's calls that pack the same tensors, with gaps between them, into one without gaps."""
    total, dtype = sum(counts), getattr(torch, buffer_type)
    wide = torch.randn(total + 128 * len(counts), device=device)
    buffer = torch.empty(total, device=device, dtype=dtype)
    sources = [part[:-128] for part in wide.split([n + 128 for n in counts])]
    parts = list(buffer.split(list(counts)))
    calls: dict[str, Callable[[], object]] = {"_foreach_copy_": lambda: torch._foreach_copy_(parts, sources)}
    if dtype == torch.float32:
        calls["cat"] = lambda: torch.cat(sources, out=buffer)
    for call in calls.values():
        buffer.zero_()
        call()
        for at, source in zip(itertools.accumulate(counts, initial=0), sources, strict=False):
            assert torch.equal(buffer[at : at + source.numel()], source.to(dtype)), "torch"
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sets", nargs="*", default=["1 MiB", "16 MiB", "resnet50", "2000 small", "gigabytes"], help=", ".join(SETS)
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="a line of JSON per result")
    arguments = parser.parse_args()
    device = Device()
    if not arguments.json:
        print(device.describe(0)["name"])
    for name in arguments.sets:
        for buffer_type in CODES:
            results = ask(device, name, buffer_type, arguments.repeats)
            for r in results:
                print(json.dumps(asdict(r)) if arguments.json else r.line(results[0]), flush=True)


if __name__ == "__main__":
    main()
