# SPDX-License-Identifier: Apache-2.0
"""Worlds one after another in one job."""

import numpy as np
import pytest

import hpccoll


@pytest.mark.mpi(min_size=2)
def test_a_new_world_hears_nothing_of_the_last():
    """Ranks end at different moments; what crosses the end must not reach the next World's communicator."""
    for number in range(20):
        with hpccoll.World(verbose=0) as world:
            assert world.allreduce(np.full(3, number)).tolist() == [number * world.size] * 3


@pytest.mark.mpi(min_size=2)
def test_plans_over_a_communicator_that_was_split():
    """MPI says only of MPI_COMM_WORLD which tags it takes, and a plan between nodes needs tags of its own."""
    from mpi4py import MPI

    split = MPI.COMM_WORLD.Split(0, MPI.COMM_WORLD.Get_rank())
    with hpccoll.World(split, verbose=0) as world:
        x = np.full(3, world.rank + 1.0)
        with world.allreduce_init(x, hpccoll.SUM) as plan:
            plan.start()
            assert plan.wait().tolist() == [world.size * (world.size + 1) / 2] * 3
    split.Free()
