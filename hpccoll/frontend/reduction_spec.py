# SPDX-License-Identifier: Apache-2.0
"""The reduction of gradients: the operation, and the type between nodes."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hpccoll import errors
from hpccoll._core import HOROVOD_WORDS, Buffer
from hpccoll.collectives import Handle
from hpccoll.compression import Compression
from hpccoll.frontend.called import of_call
from hpccoll.reductions import AVERAGE, Reduction
from hpccoll.worlds import World

__all__ = ["BucketEntry", "ReductionSpec"]

Memory = np.ndarray | Buffer


class BucketEntry(NamedTuple):
    """The memory of one gradient of a bucket: it holds the values and gets the result."""

    memory: Memory
    narrows: bool
    """Whether they are float32 or float64, which may travel as something narrower."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReductionSpec:
    """The reduction of all gradients of an optimizer."""

    world: World
    op: Reduction = AVERAGE
    compression: Compression | None = None
    """For float32 and float64; other types travel as they are."""

    def start(self, name: str, entries: Sequence[BucketEntry]) -> list[Handle]:
        """Begin to reduce the entries of a bucket in place.

        With compression, entries that cannot be narrowed are a second group, which is submitted together with the
        first.
        """
        if len(entries) == 1:
            return [self.start_one(name, *entries[0])]
        if self.compression is None or not any(entry.narrows for entry in entries):
            return [self._submit(name, _group(entries), None)]
        narrow = [entry for entry in entries if entry.narrows]
        handles = [self._submit(name, _group(narrow), self.compression)]
        rest = [entry for entry in entries if not entry.narrows]
        return [*handles, self._submit(f"{name}, as they are", _group(rest), None)] if rest else handles

    def start_one(self, name: str, memory: Memory, narrows: bool) -> Handle:
        """Begin to reduce one gradient in place."""
        return self._submit(name, memory, self.compression if narrows else None)

    def _submit(self, name: str, x: Memory | list[Memory], compression: Compression | None) -> Handle:
        try:
            return self.world.core.collective(
                "allreduce", x, name, x, False, self.op, compression=compression, words=HOROVOD_WORDS
            )
        except errors.HpccollError as error:
            raise of_call("allreduce", name, error) from None


def _group(entries: Sequence[BucketEntry]) -> Memory | list[Memory]:
    return entries[0].memory if len(entries) == 1 else [entry.memory for entry in entries]
