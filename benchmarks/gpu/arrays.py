# SPDX-License-Identifier: Apache-2.0
"""Checks arrays of CuPy and PyTorch on a real GPU: every operation and type, in order with their streams.

python benchmarks/gpu/arrays.py              1 rank, then 2 and 4 on one or two nodes (several on one GPU: see below)
python benchmarks/gpu/arrays.py --ranks 1 --library torch --mode staged

Values are compared with NumPy's. Several ranks on one GPU check correctness only, because they share its time. A
variable makes NCCL accept them (NCCL_MULTI_RANK_GPU_ENABLE from 2.30 on; before, a NCCL_HOSTID per rank, and sockets).
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import hpccoll
from hpccoll import _core, _cuda, cuda

SHARED = {
    "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0", "NCCL_MAX_CTAS": "1", "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo", "NCCL_RAS_ENABLE": "0", "NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring",
}  # fmt: skip
KNOWS_SHARING = (2, 30)
"""The first NCCL with this variable; for an older one, ranks with different host ids are on different hosts."""
LAYOUTS = ((1, 1), (2, 1), (2, 2), (4, 2))
"""Ranks and nodes."""
Values = np.ndarray[Any, Any]


class Cupy:
    """The parts of CuPy that this program uses."""

    def __init__(self) -> None:
        self.cupy = importlib.import_module("cupy")
        self.dtypes = [name for name in _core.DTYPES if name != "bfloat16"]

    def put(self, x: Values) -> Any:
        return self.cupy.asarray(x)

    def get(self, x: Any) -> Values:
        result: Values = self.cupy.asnumpy(x)
        return result

    def stream(self) -> AbstractContextManager[Any]:
        stream: AbstractContextManager[Any] = self.cupy.cuda.Stream(non_blocking=True)
        return stream

    def busy(self) -> None:
        """Give the current stream some milliseconds of work."""
        x = self.cupy.ones((4096, 4096), self.cupy.float32)
        for _ in range(8):
            x = x @ x * self.cupy.float32(1e-4)

    def is_own(self, x: Any) -> bool:
        return isinstance(x, self.cupy.ndarray)


class Torch:
    """The parts of PyTorch that this program uses."""

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        if not self.torch.cuda.is_available():
            raise ImportError("this PyTorch finds no GPU")
        unsigned = ("uint16", "uint32", "uint64")
        self.dtypes = [name for name in _core.DTYPES if name not in unsigned]

    def put(self, x: Values) -> Any:
        if x.dtype.name == "bfloat16":
            return self.torch.from_numpy(x.astype(np.float32)).cuda().bfloat16()
        return self.torch.from_numpy(x).cuda()

    def get(self, x: Any) -> Values:
        if x.dtype is self.torch.bfloat16:
            import ml_dtypes

            narrow: Values = x.float().cpu().numpy().astype(ml_dtypes.bfloat16)
            return narrow
        result: Values = x.cpu().numpy()
        return result

    def stream(self) -> AbstractContextManager[Any]:
        stream: AbstractContextManager[Any] = self.torch.cuda.stream(self.torch.cuda.Stream())
        return stream

    def busy(self) -> None:
        x = self.torch.ones((4096, 4096), device="cuda")
        for _ in range(8):
            x = x @ x * 1e-4

    def is_own(self, x: Any) -> bool:
        return isinstance(x, self.torch.Tensor)


Library = Cupy | Torch
LIBRARIES: dict[str, Callable[[], Library]] = {"cupy": Cupy, "torch": Torch}


# ---- one rank's part ---------------------------------------------------------------------------------


def numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def brought(dtype: np.dtype[Any], rank: int, shape: tuple[int, ...]) -> Values:
    """Return the values of a rank: small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng([rank, *shape])
    whole = rng.integers(0 if dtype.kind in "bu" else -2, 3, shape)
    return np.asarray(whole + 1j * rng.integers(-2, 3, shape) if dtype.kind == "c" else whole).astype(dtype)


def reduced(op: hpccoll.Reduction, parts: list[Values]) -> Values:
    """Return the reduction as docs/reductions.md defines it, of values for which the order does not matter."""
    total: Values = parts[0] != 0 if op.name[0] == "L" else parts[0]
    for part in parts[1:]:
        total = FUNCTIONS[op.name](total, part)
    if op is hpccoll.AVERAGE:
        total = np.trunc(total / len(parts)) if parts[0].dtype.kind in "iu" else total / len(parts)
    return np.asarray(total).astype(parts[0].dtype)


FUNCTIONS: dict[str, Callable[..., Values]] = {
    "SUM": np.add, "AVERAGE": np.add, "MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor, "LAND": np.logical_and,
    "LOR": np.logical_or, "LXOR": np.logical_xor,
}  # fmt: skip


def check(library: Library, what: str, got: Any, want: Values) -> None:
    assert library.is_own(got), f"{what}: a {type(got)} came back"
    values = library.get(got)
    assert values.dtype == want.dtype, (what, values.dtype, want.dtype)
    assert values.shape == want.shape, (what, values.shape, want.shape)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    narrow = want.dtype.itemsize == 2 and want.dtype.kind not in "iu"
    tolerance = 2e-2 if narrow else 1e-6 if want.dtype.kind in "fc" else 0
    np.testing.assert_allclose(values.astype(wide), want.astype(wide), tolerance, tolerance, err_msg=what)


def operations(library: Library, world: hpccoll.World) -> Iterator[str]:
    """Check every operation, type and reduction."""
    p, r = world.size, world.rank
    for name in library.dtypes:
        dtype, code = numpy_dtype(name), _core.DTYPES.index(name)
        for elements in (37, 300_001):
            parts = [brought(dtype, q, (elements,)) for q in range(p)]
            for op in hpccoll.Reduction:
                if _core.reduction_defined(op.value, code):
                    what = f"allreduce {op.name} of {elements} {name}"
                    check(library, what, hpccoll.allreduce(library.put(parts[r]), op), reduced(op, parts))
                    yield what
        rows = [brought(dtype, q, (1000 * q + 3, 5)) for q in range(p)]
        check(library, f"allgather of {name}", hpccoll.allgather(library.put(rows[r])), np.concatenate(rows))
        got = hpccoll.broadcast(library.put(brought(dtype, r, (999,))), p - 1)
        check(library, f"broadcast of {name}", got, brought(dtype, p - 1, (999,)))
        sent = [brought(dtype, q, (300 * p, 2)) for q in range(p)]
        got, _ = hpccoll.alltoall(library.put(sent[r]))
        check(library, f"alltoall of {name}", got, np.concatenate([x[300 * r : 300 * r + 300] for x in sent]))
        total, share = reduced(hpccoll.SUM, sent), 300
        got = hpccoll.reducescatter(library.put(sent[r]))
        check(library, f"reducescatter of {name}", got, total[share * r : share * (r + 1)])
        yield from (f"{operation} of {name}" for operation in ("allgather", "broadcast", "alltoall", "reducescatter"))


def order(library: Library, world: hpccoll.World) -> Iterator[str]:
    """Check late values, overwriting right after the wait, other streams, dropped arrays, groups."""
    p, r = world.size, world.rank
    for n in range(20):
        with library.stream():
            x = library.put(np.zeros(100_000, np.float32))
            library.busy()
            x += float(r + n)
            handle = hpccoll.allreduce_async(x, name="order", out=x)
            library.busy()
            handle.wait()
            x += 1
            check(library, "order", x, np.full(100_000, p * n + p * (p - 1) / 2 + 1, np.float32))
    yield "late values, and what follows the wait"
    with library.stream():
        handle = hpccoll.allreduce_async(library.put(np.ones(100_000, np.float32)), name="other")
    with library.stream():
        check(library, "another stream", handle.wait() * 1, np.full(100_000, p, np.float32))
    yield "a wait in another stream"
    handles = [hpccoll.allreduce_async(library.put(np.full(5000, n, np.float32)), name=f"d{n}") for n in range(50)]
    for n, handle in enumerate(handles):
        check(library, "dropped inputs", handle.wait(host=n % 2 == 0), np.full(5000, n * p, np.float32))
    yield "inputs that nobody holds"
    group = [library.put(np.full(n + 1, n, np.float32)) for n in range(161)]
    for n, result in enumerate(hpccoll.allreduce(group)):
        check(library, "group", result, np.full(n + 1, n * p, np.float32))
    yield "a group of 161"


def messages(library: Library, world: hpccoll.World) -> Iterator[str]:
    """Check messages with late values, which are overwritten after the wait."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for n in (1, 2049, 3_000_000):
        with library.stream():
            x, y = library.put(np.zeros(n, np.float32)), library.put(np.full(n, -1, np.float32))
            receive = hpccoll.recv_async(y, left)
            library.busy()
            x += float(world.rank)
            send = hpccoll.send_async(x, right)
            receive.wait()
            send.wait()
            x -= 1
            check(library, "message", y * 1, np.full(n, left, np.float32))
    yield "messages"


def overlapping(library: Library, world: hpccoll.World) -> Iterator[str]:
    """Check process sets with common ranks at the same time, in another order on each rank."""
    ranks = [*range(world.size)]
    sets = [made for made in map(world.subset, (ranks, ranks[::-1], ranks[: len(ranks) // 2 + 1])) if made]
    for step in range(20):
        handles = [
            (process_set.size, process_set.allreduce_async(library.put(np.full(300_000, step, np.float32))))
            for process_set in (sets if (world.rank + step) % 2 else sets[::-1])
        ]
        for size, handle in handles:
            check(library, "sets", handle.wait(), np.full(300_000, step * size, np.float32))
    for process_set in sets:
        process_set.shutdown()
    yield "sets with common ranks"


def overhead(library: Library, world: hpccoll.World) -> float:
    """Return the median of the seconds from the call to the values, for a small array with a known name."""
    x, times, end = library.put(np.ones(8, np.float32)), [], 2000 if world.size == 1 else 200
    for _ in range(end):
        began = time.perf_counter()
        hpccoll.allreduce_async(x, hpccoll.MAX, name="small", out=x).wait(host=True)
        times.append(time.perf_counter() - began)
    return sorted(times)[end // 2]


def one_rank(name: str) -> None:
    if "NCCL_NET" in os.environ:
        os.environ["NCCL_HOSTID"] = f"rank {os.environ.get('OMPI_COMM_WORLD_RANK', 0)}"
    library = LIBRARIES[name]()
    world = hpccoll.init()
    programs = (operations, order, messages, overlapping)
    done = [what for program in programs for what in program(library, world)]
    small = overhead(library, world)
    if world.rank == 0:
        print(
            json.dumps(
                {
                    "what": "a small array, from the call to its values", "library": name, "ranks": world.size,
                    "mode": os.environ.get("HPCCOLL_DEVICE_MODE", "auto"), "checked": len(done), "seconds": [small],
                }
            ),
            flush=True,
        )  # fmt: skip
    hpccoll.shutdown()


# ---- the layouts -------------------------------------------------------------------------------------


def sharing() -> dict[str, str]:
    """Return the variables that make NCCL accept several ranks on one GPU."""
    version = str(cuda.probe("NCCL")["NCCL"].get("version", "0"))
    knows = tuple(int(part) for part in version.split(".")[:2]) >= KNOWS_SHARING
    return SHARED | ({"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if knows else {"NCCL_NET": "Socket"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=sorted(LIBRARIES), action="append")
    parser.add_argument("--mode", choices=_cuda.MODES, action="append", help="HPCCOLL_DEVICE_MODE")
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        one_rank(options.rank_of)
        return 0
    failed = 0
    for ranks, nodes in LAYOUTS:
        if options.ranks and ranks not in options.ranks:
            continue
        for library in options.library or LIBRARIES:
            for mode in options.mode or ("staged", "auto") + ("nccl_flat", "mpi") * (nodes > 1):
                failed += run(ranks, nodes, library, mode)
    return failed


def run(ranks: int, nodes: int, library: str, mode: str) -> int:
    """Run one job; return 1 if it failed."""
    launch = f"-m hpccoll run -np {ranks} --nodes {nodes} --timeout 300".split()
    variables = {"HPCCOLL_DEVICE_MODE": mode, **(sharing() if ranks > 1 else {})}
    print(f"### {ranks} ranks, {nodes} nodes, {library}, {mode}", flush=True)
    command = [sys.executable, *launch, sys.executable, __file__, "--rank-of", library]
    return int(subprocess.run(command, env={**os.environ, **variables}, check=False).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
