# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of a process group: that of the job's launcher (MPI, or a store without it), else torch's store."""

import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

from hpccoll import config, default_rendezvous, errors, inherited, taken_place
from hpccoll.detect import contradictions
from hpccoll.launch_protocol import STORE
from hpccoll.rendezvous import StoreRendezvous, launcher_store
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
    """Return the number of ranks of this process's MPI job; 0: there is none, or a launcher without MPI started it."""
    environment = inherited.environment()
    if "TORCHELASTIC_RUN_ID" in environment or STORE in environment:
        return 0
    mpi = sys.modules.get("mpi4py.MPI")
    return max(contradictions.tasks(environment), mpi.COMM_WORLD.Get_size() if mpi and mpi.Is_initialized() else 0)


def install() -> None:
    """Let torch's env:// ask the launcher if the environment has no variable for it; hpccoll:// always asks it."""
    by_environment = _rendezvous_handlers["env"]

    def env(url: str, timeout: timedelta = default_pg_timeout, **options: Any) -> Iterator[Any]:
        environment = inherited.environment()
        launched = _mpi_ranks() or STORE in environment
        if launched and not any(environment.get(name) for name in _ASKED_BY_ENV) and "?" not in url:
            return _through_launcher(url, timeout)
        return by_environment(url, timeout=timeout, **options)

    _rendezvous_handlers["env"] = env
    register_rendezvous_handler(SCHEME, _through_launcher)  # type: ignore[no-untyped-call]


def _through_launcher(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> Iterator[Any]:
    """Yield a store that rank 0 serves at a free port, and the launcher's rank and size."""
    taken_place.check()
    rank, size, allgather = _ranks()
    hosts, store = allgather(socket.gethostname()), None
    host = hosts[0] if len(set(hosts)) > 1 else "localhost"
    if rank == 0:
        store = TCPStore(host, 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    port = allgather(store.port if store else 0)[0]
    store = store or TCPStore(host, port, size, is_master=False, timeout=timeout, wait_for_workers=False)
    allgather(None)  # an error on rank 0 drops the store, which must not happen while others connect to it
    yield store, rank, size
    raise RuntimeError(f"Unable to perform re-rendezvous using {url}")


def _ranks() -> tuple[int, int, Callable[[Any], list[Any]]]:
    """Return the rank, the number of ranks and an allgather: those of a launcher's store, as Ray's, or MPI's."""
    environment = inherited.environment()
    if of_launcher := launcher_store.of_process(environment):
        found = default_rendezvous.through_launcher(of_launcher, config.read(), prefix="hpccoll.torch")
        return found.rank, found.size, found.allgather
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if problem := contradictions.singleton_problem(environment, comm.Get_size()):
        raise errors.StartError(str(problem))
    return comm.Get_rank(), comm.Get_size(), comm.allgather
