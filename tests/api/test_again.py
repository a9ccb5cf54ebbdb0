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
            assert hpccoll.allreduce(np.full(3, number), world=world).tolist() == [number * world.size] * 3
