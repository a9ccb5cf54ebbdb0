# SPDX-License-Identifier: Apache-2.0
"""A network that learns to step over several time steps of the simulation at once, from the cells around each cell."""

import numpy as np
import torch
from atmosphere import HALO, NAMES
from torch import nn

LEAP = 4
"""Time steps of the simulation that the network steps over: a wave travels two cells meanwhile."""
SCALE = 0.1
"""The size of the winds, to which the network's inputs and outputs are scaled."""


class Emulator(nn.Module):
    """Three convolutions without padding, so that it needs a halo of three cells, as a step of the simulation does."""

    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(len(NAMES), channels, 3), nn.GELU(),
            nn.Conv2d(channels, channels, 3), nn.GELU(),
            nn.Conv2d(channels, len(NAMES), 3),
        )  # fmt: skip

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        """Return the change of the cells inside the halo. Shapes: (batch, fields, rows, columns)."""
        change: torch.Tensor = self.layers(q / SCALE)
        return SCALE * change

    @torch.no_grad()
    def leap(self, q: np.ndarray) -> np.ndarray:
        """Return the cells inside the halo after LEAP steps; `q` has shape (fields, rows, columns)."""
        own = q[:, HALO:-HALO, HALO:-HALO]
        change = self(torch.from_numpy(q.astype(np.float32))[None])[0]
        return np.asarray(own + change.numpy())
