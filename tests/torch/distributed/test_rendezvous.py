# SPDX-License-Identifier: Apache-2.0
"""The rendezvous of a process group under a launcher of MPI jobs."""

import time
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from mpi4py import MPI

import hpccoll.torch  # noqa: F401 - registers the rendezvous
from hpccoll.torch.distributed import rendezvous

pytestmark = pytest.mark.mpi


def test_a_store_is_not_dropped_while_others_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 keeps the store: an error in what it does next must not take the store from ranks that come late."""
    connect, late = rendezvous.TCPStore, MPI.COMM_WORLD.Get_rank() != 0

    def connect_late(*place: Any, **options: Any) -> Any:
        if late:
            time.sleep(0.3)
        return connect(*place, **options)

    monkeypatch.setattr(rendezvous, "TCPStore", connect_late)
    generator = rendezvous._through_launcher("hpccoll://", timedelta(seconds=60))
    store, rank, size = next(generator)
    assert (rank, size) == (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size())
    generator.close()
    del store
    MPI.COMM_WORLD.Barrier()


@pytest.mark.usefixtures("group")
def test_a_name_serves_groups_of_several_sizes() -> None:
    """As under torchrun, whose store outlives the process groups that are numbered in it."""
    store = dist.PrefixStore("one name", dist.distributed_c10d._get_default_store())
    minute = timedelta(minutes=1)
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        assert rendezvous.through_store(store, 0, 1, minute).allgather("alone") == ["alone"]
    dist.barrier()
    for _ in range(2):
        assert rendezvous.through_store(store, rank, size, minute).allgather(rank) == list(range(size))
