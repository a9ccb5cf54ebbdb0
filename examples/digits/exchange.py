# SPDX-License-Identifier: Apache-2.0
"""Averages the gradients of a training step over the ranks; a run in one process leaves them as they are."""

import time
from typing import Protocol

from network import Half

import hpccoll


class Exchange(Protocol):
    def add(self, gradients: dict[str, Half]) -> None:
        """Take one layer's gradients, and perhaps start to send them. Do not change them before finish()."""

    def finish(self) -> dict[str, Half]:
        """Return the mean of all gradients added since the last finish(), by name."""


class OneProcess:
    """One process, whose gradients are the mean. It does not use hpccoll, so that the comparison means something."""

    def __init__(self) -> None:
        self._gradients: dict[str, Half] = {}

    def add(self, gradients: dict[str, Half]) -> None:
        self._gradients |= gradients

    def finish(self) -> dict[str, Half]:
        gradients, self._gradients = self._gradients, {}
        return gradients


class Mean:
    """All ranks. Groups of layers are enqueued while the backward pass still computes the layers before them."""

    def __init__(self, layers_per_group: int) -> None:
        self._layers_per_group = layers_per_group
        self._layers = 0
        self._open: dict[str, Half] = {}
        self._flying: list[tuple[dict[str, Half], hpccoll.Handle]] = []
        self.exposed = 0.0  # seconds that finish() had to wait

    def add(self, gradients: dict[str, Half]) -> None:
        self._open |= gradients
        self._layers += 1
        if self._layers == self._layers_per_group:
            self._enqueue()

    def _enqueue(self) -> None:
        """Enqueue one group, which is agreed, fused and completed together, and reduced in place."""
        group, self._open, self._layers = self._open, {}, 0
        arrays = list(group.values())
        name = " ".join(group)
        handle = hpccoll.allreduce_async(arrays, hpccoll.AVERAGE, name=name, out=arrays)
        self._flying.append((group, handle))

    def finish(self) -> dict[str, Half]:
        if self._open:
            self._enqueue()
        start = time.perf_counter()
        mean: dict[str, Half] = {}
        for group, handle in self._flying:
            handle.wait()
            mean |= group
        self.exposed += time.perf_counter() - start
        self._flying.clear()
        return mean
