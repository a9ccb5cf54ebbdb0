# SPDX-License-Identifier: Apache-2.0
"""Nodes with more ranks than a shortcut counts, and with more than share memory."""

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

pytestmark = pytest.mark.slow  # hundreds of threads

RANKS = 257
"""A shortcut has at most 256."""
MOST = 1024


def test_more_ranks_than_a_shortcut_counts():
    def program(world: hpccoll.World) -> None:
        rank, size = world.rank, world.size
        assert (world.allreduce(np.full(1000, rank, np.int32)) == RANKS * (RANKS - 1) // 2).all()
        assert (world.allgather(np.array([rank])) == np.arange(size)).all()
        assert world.broadcast(np.array([rank]), root=size - 1) == size - 1
        assert world.scan(np.array([1])) == rank + 1
        rows, counts = world.alltoall(np.arange(size) + 1000 * rank)
        assert (rows == rank + 1000 * np.arange(size)).all()
        assert (counts == 1).all()
        x, handle = np.empty(1), world.send_async(np.array([float(rank)]), dest=(rank + 1) % size)
        assert world.recv(x, source=(rank - 1) % size) == x[0] == (rank - 1) % size
        handle.wait()

    testing.run(testing.threads(RANKS), program)


def test_more_ranks_than_share_memory():
    with pytest.raises(hpccoll.StartError, match=rf"a node has {MOST + 1} ranks, of which at most {MOST} share memory"):
        testing.run(testing.threads(MOST + 1), lambda world: world.size)
