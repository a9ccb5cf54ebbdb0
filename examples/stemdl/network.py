# SPDX-License-Identifier: Apache-2.0
"""A small fully convolutional dense network (after Jegou et al., "The One Hundred Layers Tiramisu", CVPRW 2017).

In a dense block each layer gets the results of all layers before it. Blocks and halvings of the resolution lead to a
bottleneck; the way back up also gets the features of the way down. The output has twice the resolution of the scan. The
network uses group instead of batch normalisation, so a sample's result does not depend on the number of ranks.
"""

import torch
from torch import Tensor, nn


class DenseLayer(nn.Sequential):
    """Normalise, rectify, convolve: `growth` new channels."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__(nn.GroupNorm(4, channels), nn.ReLU(), nn.Conv2d(channels, growth, 3, padding=1, bias=False))


class DenseBlock(nn.Module):
    """`layers` dense layers; the result has layers x growth channels, and those of the input if they are kept."""

    def __init__(self, channels: int, growth: int, layers: int, keep_input: bool) -> None:
        super().__init__()
        self.keep_input = keep_input
        self.layers = nn.ModuleList(DenseLayer(channels + i * growth, growth) for i in range(layers))
        self.channels = layers * growth + keep_input * channels

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for layer in self.layers:
            seen.append(layer(torch.cat(seen, 1)))
        return torch.cat(seen if self.keep_input else seen[1:], 1)


class Halve(nn.Sequential):
    """Mix the channels, then keep the strongest of each 2 x 2 pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.MaxPool2d(2),
        )


class Reconstruction(nn.Module):
    """From diffraction patterns (N x detector^2 x scan x scan) to the potential (N x 2 scan x 2 scan)."""

    def __init__(self, detector_pixels: int, growth: int = 12, layers: int = 3, levels: int = 2) -> None:
        super().__init__()
        channels = 4 * growth
        self.first = nn.Conv2d(detector_pixels, channels, 3, padding=1, bias=False)
        self.down, self.halve = nn.ModuleList(), nn.ModuleList()
        skipped = []
        for _ in range(levels):
            self.down.append(DenseBlock(channels, growth, layers, keep_input=True))
            channels = self.down[-1].channels
            skipped.append(channels)
            self.halve.append(Halve(channels))
        self.bottleneck = DenseBlock(channels, growth, layers, keep_input=False)
        channels = self.bottleneck.channels
        self.widen, self.up = nn.ModuleList(), nn.ModuleList()
        for beside in reversed(skipped):
            self.widen.append(nn.ConvTranspose2d(channels, channels, 2, stride=2, bias=False))
            self.up.append(DenseBlock(channels + beside, growth, layers, keep_input=False))
            channels = self.up[-1].channels
        self.last = nn.Sequential(
            nn.ConvTranspose2d(channels, channels, 2, stride=2),
            nn.ReLU(),
            nn.Conv2d(channels, 1, 3, padding=1),
        )

    def forward(self, patterns: Tensor) -> Tensor:
        x, passed = self.first(patterns), []
        for block, halve in zip(self.down, self.halve, strict=True):
            passed.append(block(x))
            x = halve(passed[-1])
        x = self.bottleneck(x)
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([widen(x), passed.pop()], 1))
        return self.last(x).squeeze(1)
