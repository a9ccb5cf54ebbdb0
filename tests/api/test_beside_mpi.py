# SPDX-License-Identifier: Apache-2.0
"""The program's own calls of MPI end while other ranks wait in hpccoll: MPI rests while its process is not in it."""

import numpy as np
import pytest

import hpccoll

MPI = pytest.importorskip("mpi4py.MPI")
pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.timeout(60)]


@pytest.fixture(params=["", "1"], ids=["nodes of the job", "one node"])
def world(request):
    with hpccoll.World(verbose=0, stall_limit=30, **({"nodes": request.param} if request.param else {})) as world:
        yield world


def test_a_large_send_ends_while_its_receiver_waits_in_a_barrier(world):
    comm, last = MPI.COMM_WORLD, world.size - 1
    x = np.full(1 << 18, world.rank + 1.0)
    if world.rank == last:
        request = comm.Irecv(x, 0)
        world.barrier()
        request.Wait()
        assert (x == 1).all()
    else:
        if world.rank == 0:
            comm.Send(x, last)
        world.barrier()


@pytest.mark.parametrize("call", ["barrier", "recv", "plan"])
def test_a_collective_of_mpi_ends_while_a_rank_waits(world, call):
    total, x, y = np.zeros(1 << 18), np.ones(1 << 18), np.zeros(1)
    plan = world.barrier_init()
    request = MPI.COMM_WORLD.Iallreduce(x, total)
    waits = {"barrier": world.barrier, "plan": plan, "recv": lambda: world.recv(y, 1)}[call]
    if world.rank == 0:
        waits()
        request.Wait()
    else:
        request.Wait()
        if call != "recv":
            waits()
        elif world.rank == 1:
            world.send(np.ones(1), 0)
    assert (total == world.size).all()
