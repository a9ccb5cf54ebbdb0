# SPDX-License-Identifier: Apache-2.0
"""The newest states of all ranks of a node, in memory that they share: each rank learns from all of them."""

import numpy as np
import torch
from atmosphere import HALO, Atmosphere

import hpccoll


class History:
    """A ring of states, one LEAP apart, each with the parts of all ranks of this node.

    :param slots: states that are kept
    """

    def __init__(self, world: hpccoll.World, air: Atmosphere, slots: int) -> None:
        self.world, self.air, self.count = world, air, 0
        most = hpccoll.allreduce(world.local_size, hpccoll.MAX)  # the array has one shape on all nodes
        self.states = world.shared_array((slots, most, *air.q.shape), np.float32)

    def keep(self) -> None:
        """Keep the present state. All ranks call it, and a barrier before any of them reads."""
        self.air.fill_halo()
        self.states[self.count % len(self.states), self.world.local_rank] = self.air.q
        self.count += 1

    def windows(self, random: np.random.Generator, batch: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return random windows with their halos, and their cells one LEAP later."""
        before, after = [], []
        newest = min(self.count, len(self.states)) - 1
        for _ in range(batch):
            at = self.count - 1 - int(random.integers(1, newest + 1))
            rank = random.integers(self.world.local_size)
            y, x = random.integers(self.air.rows - side + 1), random.integers(self.air.columns - side + 1)
            first, second = (self.states[(at + later) % len(self.states), rank] for later in (0, 1))
            before.append(first[:, y : y + side + 2 * HALO, x : x + side + 2 * HALO])
            after.append(second[:, y + HALO : y + HALO + side, x + HALO : x + HALO + side])
        return torch.from_numpy(np.stack(before)), torch.from_numpy(np.stack(after))
