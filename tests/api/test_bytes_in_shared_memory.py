# SPDX-License-Identifier: Apache-2.0
"""A rank copies into the node's shared memory what the other ranks of its node read, and nothing else."""

import numpy as np
import pytest

import hpccoll

pytestmark = pytest.mark.timeout(100)
SHARE = 40_000  # bytes for each rank: of more an alltoall copies none there (decision 131)
COUNTS = 4096  # bytes: more than the ranks exchange about their rows


@pytest.mark.parametrize("operation", ["alltoall", "scatter", "gather", "reduce"])
def test_bytes(everywhere, operation):
    def program(world: hpccoll.World) -> None:
        size, root = world.size, world.size - 1
        node_of = [world.base.loop.node_of[member] for member in world.core.members]
        near = node_of.count(node_of[world.rank]) - 1
        at_root, is_root = node_of[world.rank] == node_of[root], world.rank == root
        x = np.full((size, SHARE), world.rank, np.uint8)
        calls = {
            "alltoall": (lambda: world.alltoall(x, name="x"), near * SHARE),
            "scatter": (lambda: world.scatter(x, root, name="x"), is_root * near * SHARE),
            "gather": (lambda: world.gather(x, root, name="x"), (at_root and not is_root) * x.nbytes),
            "reduce": (lambda: world.reduce(x, op=hpccoll.MAX, root=root, name="x"), near * x.nbytes // (near + 1)),
        }
        call, wanted = calls[operation]
        before = world.stats()["packed_bytes"]
        call()
        world.barrier(name="done")
        packed = world.stats()["packed_bytes"] - before
        assert wanted - 64 * size <= packed <= wanted + COUNTS

    everywhere(program)
