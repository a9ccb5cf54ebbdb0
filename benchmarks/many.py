# SPDX-License-Identifier: Apache-2.0
"""Sums of lists of named tensors in place, in the variants of each library, and fused by hand."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import Case, check_sum, random_data
from libraries import COMM, Gloo, Horovod, Hpccoll, Library, Memcpy, Mpi
from mpi4py import MPI
from numpy.typing import NDArray

Tensors = dict[str, NDArray[np.float32]]
Variants = dict[str, Callable[[], object]]

BUCKET = 25 << 20  # bytes: the default of torch's DistributedDataParallel


def cases(library: Library, shapes: list[tuple[str, tuple[int, ...]]], label: str) -> Iterator[Case]:
    """Yield a case for each variant in which the library can sum tensors of these names and shapes."""
    tensors = {name: np.empty(shape, np.float32) for name, shape in shapes}
    size = sum(x.nbytes for x in tensors.values())
    fill(tensors)
    inputs = {name: x.copy() for name, x in tensors.items()}
    for variant, run in variants(library, tensors).items():
        verify, write = verifier(library, variant, tensors, run), partial(copy_all, tensors, inputs)
        yield Case(variant, label, run, verify, size, write=write)


def fill(tensors: Tensors) -> None:
    """Fill tensors from this rank's random stream."""
    values = random_data(COMM.rank, sum(x.size for x in tensors.values()))
    first = 0
    for x in tensors.values():
        x[...] = values[first : first + x.size].reshape(x.shape)
        first += x.size


def copy_all(to: Tensors, source: Tensors) -> None:
    for name, x in source.items():
        np.copyto(to[name], x)


def verifier(library: Library, variant: str, tensors: Tensors, run: Callable[[], object]) -> Callable[[], None]:
    """Fill the tensors, run once and compare each with the float64 sum; then zero them for the timing."""

    def verify() -> None:
        fill(tensors)
        run()
        if not isinstance(library, Memcpy):
            flat = np.concatenate([x.ravel() for x in tensors.values()])
            check_sum(flat, flat.size, tolerance=1e-2 if "FP16" in variant else 1e-5)
        for x in tensors.values():
            x[...] = 0

    return verify


def variants(library: Library, tensors: Tensors) -> Variants:
    match library:
        case Hpccoll():
            return hpccoll_variants(library, tensors)
        case Mpi():
            return mpi_variants(tensors)
        case Gloo():
            return gloo_variants(library, tensors)
        case Horovod():
            return horovod_variants(library, tensors)
        case Memcpy():
            return memcpy_variants(tensors)
    raise TypeError(type(library))


def hpccoll_variants(library: Hpccoll, tensors: Tensors) -> Variants:
    hc, arrays = library.hpccoll, list(tensors.values())

    def one_by_one(compression: object = None) -> None:
        handles = [hc.allreduce_async(x, name=name, out=x, compression=compression) for name, x in tensors.items()]
        for handle in handles:
            handle.wait()

    return {
        "enqueued, then awaited": one_by_one,
        "one group": lambda: hc.allreduce(arrays, name="group", out=arrays),
        "enqueued, FP16": lambda: one_by_one(hc.compression.FP16),
    }


def mpi_variants(tensors: Tensors) -> Variants:
    arrays = list(tensors.values())
    fused = np.empty(sum(x.size for x in arrays), np.float32)
    bounds = np.cumsum([0, *(x.size for x in arrays)])

    def one_by_one() -> None:
        for x in arrays:
            COMM.Allreduce(MPI.IN_PLACE, x)

    def by_hand() -> None:
        for x, first, last in zip(arrays, bounds[:-1], bounds[1:], strict=True):
            fused[first:last] = x.ravel()
        COMM.Allreduce(MPI.IN_PLACE, fused)
        for x, first, last in zip(arrays, bounds[:-1], bounds[1:], strict=True):
            x.ravel()[:] = fused[first:last]

    return {"tensor by tensor": one_by_one, "fused by hand": by_hand}


def gloo_variants(library: Gloo, tensors: Tensors) -> Variants:
    torch, dist = library.torch, library.dist
    buckets: list[list[Any]] = [[]]
    filled = 0
    for x in tensors.values():
        if filled and filled + x.nbytes > BUCKET:
            buckets.append([])
            filled = 0
        buckets[-1].append(torch.from_numpy(x))
        filled += x.nbytes
    flat = [torch.empty(sum(t.numel() for t in bucket)) for bucket in buckets]

    def in_buckets(dtype: Any = torch.float32) -> None:
        works = []
        for bucket, buffer in zip(buckets, flat, strict=True):
            torch.cat([t.reshape(-1) for t in bucket], out=buffer)
            narrow = buffer.to(dtype)
            works.append((dist.all_reduce(narrow, async_op=True), narrow))
        for bucket, (work, narrow) in zip(buckets, works, strict=True):
            work.wait()
            first = 0
            for t in bucket:
                t.copy_(narrow[first : first + t.numel()].view(t.shape))
                first += t.numel()

    def one_by_one() -> None:
        for work in [dist.all_reduce(t, async_op=True) for bucket in buckets for t in bucket]:
            work.wait()

    return {
        "enqueued, then awaited": one_by_one,
        "25 MB buckets": in_buckets,
        "25 MB buckets, FP16": lambda: in_buckets(torch.float16),
    }


def horovod_variants(library: Horovod, tensors: Tensors) -> Variants:
    hvd = library.hvd
    named = {name: library.torch.from_numpy(x) for name, x in tensors.items()}

    def one_by_one() -> None:
        for handle in [hvd.allreduce_async_(t, op=hvd.Sum, name=name) for name, t in named.items()]:
            hvd.synchronize(handle)

    def halves() -> None:
        pairs = []
        for name, t in named.items():
            narrow = t.half()
            pairs.append((t, narrow, hvd.allreduce_async_(narrow, op=hvd.Sum, name=f"{name}.half")))
        for t, narrow, handle in pairs:
            hvd.synchronize(handle)
            t.copy_(narrow)

    def group() -> None:
        hvd.synchronize(hvd.grouped_allreduce_async_(list(named.values()), op=hvd.Sum, name="group"))

    return {"enqueued, then awaited": one_by_one, "one group": group, "enqueued, FP16": halves}


def memcpy_variants(tensors: Tensors) -> Variants:
    copies = {name: x.copy() for name, x in tensors.items()}
    return {"copy of all": partial(copy_all, copies, tensors)}
