# SPDX-License-Identifier: Apache-2.0
"""init() of Horovod's interface for PyTorch. Under torchrun the ranks find each other through its store."""

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hpccoll import config, detect, errors, inherited, taken_place
from hpccoll.frontend.process_sets import ProcessSet
from hpccoll.horovod import job
from hpccoll.rendezvous import Rendezvous

__all__ = ["init"]


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Make the World. All its ranks call this together; if there is a World already, nothing happens.

    :param comm: an mpi4py communicator, or a list of ranks of MPI.COMM_WORLD, each of which calls this; default: all
        ranks, which are those of MPI, or the processes that torchrun has started
    :param process_sets: sets to register at once, or "dynamic", which has no effect, as sets may always be added later
    :raises InvalidArgumentError: (a ValueError) an argument is wrong, or there is a World and arguments are given
    :raises StartError: (a RuntimeError) the World could not be made
    """
    job.init(comm, process_sets, through=_torchruns if comm is None and _under_torchrun() else None)


def _under_torchrun() -> bool:
    """Whether torchrun has started this process and others, without a launcher of MPI jobs in between."""
    place = detect.place(inherited.environment())
    several = place is not None and place.launcher == "torchrun" and (place.size or 1) > 1
    return several and not config.read().allow_singleton and dist.is_available()


def _torchruns() -> Rendezvous:
    """Find the other processes through torchrun's store."""
    from torch._C._distributed_c10d import PrefixStore

    from hpccoll.torch.distributed.rendezvous import through_store

    taken_place.check()
    seconds = timedelta(seconds=config.read().start_timeout)
    store, rank, size = _store(seconds)
    return through_store(PrefixStore("hpccoll.torch", store), rank, size, seconds)


@functools.cache
def _store(timeout: timedelta) -> tuple[Any, int, int]:
    """Connect to torchrun's store, once per process: if rank 0 serves it, it must outlive a World.

    :returns: the store, this process's rank, and the number of ranks
    """
    from torch.distributed.rendezvous import rendezvous

    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timeout)))
    except (RuntimeError, ValueError, StopIteration) as error:
        raise errors.StartError(f"the World was not made: torchrun's store cannot be reached: {error}") from error
    return store, rank, size
