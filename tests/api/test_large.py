# SPDX-License-Identifier: Apache-2.0
"""Results that no cache holds; and beyond 2^31 bytes, where the machine has the memory."""

import os

import numpy as np
import pytest

import hpccoll
from hpccoll import testing

LARGE = (1 << 31) + 4097
AVAILABLE = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
LAYOUTS = ["", "1+1"] if AVAILABLE > 5 * LARGE else []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("nodes", LAYOUTS)
def test_more_bytes_than_an_int_counts(threads, nodes):
    def program(world):
        x = np.full(LARGE, world.rank + 1, np.uint8)
        x[-1] = 7
        world.allreduce(x, out=x)
        assert x[0] == x[LARGE // 2] == 3
        assert x[-1] == 14
        x[-2] = world.rank
        world.broadcast(x, 1, out=x)
        assert (x[-2], x[0]) == (1, 3)
        part = x[: LARGE // 2 + world.rank]
        whole = world.allgather(part)
        assert whole.shape == (2 * (LARGE // 2) + 1,)
        assert whole[0] == whole[LARGE // 2] == whole[-1] == 3

    testing.run(threads(2, nodes=nodes), program)


@pytest.mark.parametrize("nodes", ["", "1+2"])
def test_results_that_no_cache_holds(threads, nodes):
    """Copies into results of many MiB take other stores than into small ones."""
    rows = 3 * (5 << 17)  # of 8 bytes: 15 MiB

    def of(rank: int) -> np.ndarray:
        return np.arange(rows, dtype=np.int64) * (rank + 1)

    def program(world):
        me, size, root = world.rank, world.size, 1
        x, share = of(me), slice(me * rows // 3, (me + 1) * rows // 3)
        assert np.array_equal(world.allreduce(x), sum(of(rank) for rank in range(size)))
        assert np.array_equal(world.broadcast(x, root), of(root))
        thirds = np.concatenate([of(rank)[rank * rows // 3 :][: rows // 3] for rank in range(size)])
        assert np.array_equal(world.allgather(x[share]), thirds)
        assert np.array_equal(world.alltoall(x)[0], np.concatenate([of(rank)[share] for rank in range(size)]))
        gathered = world.gather(x[share], root)
        assert me != root or np.array_equal(gathered, thirds)
        assert np.array_equal(world.scatter(x, root), of(root)[share])
        assert np.array_equal(world.scan(x), sum(of(rank) for rank in range(me + 1)))
        assert np.array_equal(world.exscan(x), sum((of(rank) for rank in range(me)), np.zeros(rows, np.int64)))
        assert world.exscan(np.ones(2 * rows), hpccoll.PRODUCT).max() == 1

    testing.run(threads(3, nodes=nodes), program)
