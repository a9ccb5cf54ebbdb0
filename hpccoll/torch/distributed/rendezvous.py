# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of a process group: through MPI under a launcher of MPI jobs, else through torch's store."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

from hpccoll import config, errors, inherited, taken_place
from hpccoll.detect import contradictions
from hpccoll.rendezvous import StoreRendezvous
from hpccoll.worlds import World

__all__ = ["SCHEME", "install", "make_world", "through_store"]

SCHEME = "hpccoll"
_ASKED_BY_ENV = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def make_world(rank: int, size: int, store: Store, timeout: timedelta) -> World:
    """Make the World of all ranks that share `store`; all of them call this together."""
    taken_place.check()
    found = through_store(store, rank, size, timeout)
    if not _mpi_ranks() > 1:
        return World(rendezvous=found)
    from mpi4py import MPI

    ranks = found.allgather(MPI.COMM_WORLD.Get_rank())
    if len(set(ranks)) != size:
        alone = contradictions.singleton_problem(inherited.environment(), MPI.COMM_WORLD.Get_size())
        raise errors.StartError(f"torch's {size} ranks have the MPI ranks {ranks}: {alone or 'they must all differ'}")
    comm = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(ranks))
    try:
        return World(comm)
    finally:
        comm.Free()


def through_store(store: Store, rank: int, size: int, timeout: timedelta) -> StoreRendezvous:
    """Return a rendezvous with keys that no other group uses.

    A store such as torchrun's outlives process groups, and a group of another size may have the same name.
    """
    seconds = min(timeout.total_seconds(), config.read().start_timeout)
    any_store = cast("Any", store)  # torch's stubs know no set() of bytes
    return StoreRendezvous(rank, size, any_store, prefix=f"hpccoll/{size}", timeout=seconds)


def _mpi_ranks() -> int:
    """Return the number of ranks of this process's MPI job; 0: there is none, or torchrun started the process."""
    environment = inherited.environment()
    if "TORCHELASTIC_RUN_ID" in environment:
        return 0
    mpi = sys.modules.get("mpi4py.MPI")
    return max(contradictions.tasks(environment), mpi.COMM_WORLD.Get_size() if mpi and mpi.Is_initialized() else 0)


def install() -> None:
    """Let torch's env:// use MPI if the environment has no variable for it; hpccoll:// always uses MPI."""
    by_environment = _rendezvous_handlers["env"]

    def env(url: str, timeout: timedelta = default_pg_timeout, **options: Any) -> Iterator[Any]:
        environment = inherited.environment()
        if _mpi_ranks() and not any(environment.get(name) for name in _ASKED_BY_ENV) and "?" not in url:
            return _through_mpi(url, timeout)
        return by_environment(url, timeout=timeout, **options)

    _rendezvous_handlers["env"] = env
    register_rendezvous_handler(SCHEME, _through_mpi)  # type: ignore[no-untyped-call]


def _through_mpi(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> Iterator[Any]:
    """Yield a store that rank 0 serves at a free port, and MPI's rank and size."""
    taken_place.check()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    if problem := contradictions.singleton_problem(inherited.environment(), size):
        raise errors.StartError(str(problem))
    hosts, store = comm.allgather(socket.gethostname()), None
    host = hosts[0] if len(set(hosts)) > 1 else "localhost"
    if rank == 0:
        store = TCPStore(host, 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    port = comm.bcast(store.port if store else None)
    store = store or TCPStore(host, port, size, is_master=False, timeout=timeout, wait_for_workers=False)
    comm.Barrier()  # an error on rank 0 drops the store, which must not happen while others connect to it
    yield store, rank, size
    raise RuntimeError(f"Unable to perform re-rendezvous using {url}")
