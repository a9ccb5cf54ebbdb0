# SPDX-License-Identifier: Apache-2.0
"""Beyond 2^31 bytes, where the machine has the memory."""

import os

import numpy as np
import pytest

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
