# SPDX-License-Identifier: Apache-2.0
"""hpccoll and its peers behind one small interface; only the chosen library is imported."""

import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Array = NDArray[Any]
COMM = MPI.COMM_WORLD


class Library(Protocol):
    name: str
    version: str

    def sum_in_place(self, x: Array) -> Callable[[], object]:
        """Return a call that replaces x by its sum over the ranks (blocking)."""

    def close(self) -> None: ...


class Hpccoll:
    name = "hpccoll"

    def __init__(self) -> None:
        import hpccoll

        hpccoll.init()
        self.hpccoll = hpccoll
        self.version = hpccoll.__version__

    def sum_in_place(self, x: Array) -> Callable[[], object]:
        allreduce = self.hpccoll.allreduce
        return lambda: allreduce(x, name="x", out=x)

    def close(self) -> None:
        self.hpccoll.shutdown()


class Mpi:
    """Plain mpi4py on the MPI of the environment, as a careful user would write it."""

    def __init__(self) -> None:
        vendor, version = MPI.get_vendor()
        self.name = vendor.lower().replace(" ", "")
        self.version = ".".join(map(str, version))

    def sum_in_place(self, x: Array) -> Callable[[], object]:
        if x.dtype.itemsize == 2:
            raise NotImplementedError("MPI has no 16-bit float")
        return lambda: COMM.Allreduce(MPI.IN_PLACE, x)

    def close(self) -> None:
        pass


class Memcpy:
    """The lower bound: every rank copies the array once, all at the same time."""

    name = "memcpy"
    version = np.__version__

    def sum_in_place(self, x: Array) -> Callable[[], object]:
        y = x.copy()
        return lambda: np.copyto(y, x)

    def close(self) -> None:
        pass


class Gloo:
    name = "gloo"

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        here = "127.0.0.1"
        store = dist.TCPStore(here, 0, is_master=True, wait_for_workers=False) if COMM.rank == 0 else None
        port = COMM.bcast(store.port if store else None)
        store = store or dist.TCPStore(here, port, is_master=False)
        dist.init_process_group("gloo", store=store, rank=COMM.rank, world_size=COMM.size)
        self.torch, self.dist = torch, dist
        self.version = torch.__version__

    def tensor(self, x: Array) -> Any:
        if x.dtype.name == "bfloat16":
            return self.torch.from_numpy(x.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(x)

    def sum_in_place(self, x: Array) -> Callable[[], object]:
        tensor = self.tensor(x)
        return lambda: self.dist.all_reduce(tensor)

    def close(self) -> None:
        self.dist.destroy_process_group()


class Horovod:
    """Horovod with its defaults: cycles of 1 ms, fusion up to 128 MiB, the response cache, no autotuning."""

    name = "horovod"

    def __init__(self) -> None:
        import horovod
        import horovod.torch as hvd
        import torch

        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # like horovodrun's `-bind-to none`
        torch.set_num_threads(1)
        hvd.init()
        self.hvd, self.torch = hvd, torch
        self.version = horovod.__version__

    def sum_in_place(self, x: Array) -> Callable[[], object]:
        if x.dtype.name == "bfloat16":
            raise NotImplementedError("Horovod has no bfloat16")
        tensor = self.torch.from_numpy(x)
        return lambda: self.hvd.allreduce_(tensor, op=self.hvd.Sum, name="x")

    def close(self) -> None:
        self.hvd.shutdown()


LIBRARIES: dict[str, type[Library]] = {
    "hpccoll": Hpccoll,
    "mpi": Mpi,
    "memcpy": Memcpy,
    "gloo": Gloo,
    "horovod": Horovod,
}


def open_library(name: str) -> Any:
    return LIBRARIES[name]()
