# SPDX-License-Identifier: Apache-2.0
"""DDP's gradients through hpccoll while the rest of the program keeps its backend.

>>> hpccoll.init()
>>> model.register_comm_hook(None, hpccoll.torch.ddp_hook.allreduce_hook)
>>> model.register_comm_hook(ddp_hook.State(compression=hpccoll.compression.FP16), ddp_hook.allreduce_hook)
"""

import collections
import dataclasses
import weakref

import torch
from torch._C._distributed_c10d import GradBucket

from hpccoll.collectives import Handle, Reduction
from hpccoll.compression import Compression
from hpccoll.torch.tensors import buffer, dense
from hpccoll.torch.work import Work
from hpccoll.world import World, current

__all__ = ["State", "allreduce_hook"]


@dataclasses.dataclass(frozen=True)
class State:
    """What a hook needs to know."""

    world: World | None = None
    """The ranks of DDP's process group, in its order; default: the World of hpccoll.init()."""
    compression: Compression | None = None
    """What float32 and float64 gradients travel as."""
    timeout: float = 1800.0
    """Seconds after which a bucket fails."""


NAMES = 4
"""Each bucket has so many names, in turn: one backward pass may go through several models with equal buckets."""


class _Calls:
    """What was begun in a World; equal buckets match by their order."""

    def __init__(self) -> None:
        self.number: collections.Counter[str] = collections.Counter()
        self.in_flight: dict[str, Handle] = {}

    def name(self, bucket: str, timeout: float) -> str:
        """Give the next name, when what had it is done."""
        self.number[bucket] += 1
        name = f"{bucket}, {self.number[bucket] % NAMES}"
        before = self.in_flight.get(name)
        if before is not None and not before.done():
            before.wait(timeout)
        return name


_calls: weakref.WeakKeyDictionary[World, _Calls] = weakref.WeakKeyDictionary()


def allreduce_hook(state: State | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients over the ranks, in place.

    :param state: default: State()
    :returns: a future of the bucket's tensor
    """
    state = state or State()
    world, tensor = current(state.world), bucket.buffer()
    x = buffer(dense(tensor))
    calls = _calls.setdefault(world, _Calls())
    name = calls.name(f"DDP bucket {bucket.index()} of {tensor.numel()}", state.timeout)
    handle = world.core.allreduce(x, Reduction.AVERAGE, name, x, 1.0, 1.0, state.compression, False)
    calls.in_flight[name] = handle

    def settled() -> None:
        if calls.in_flight.get(name) is handle:
            del calls.in_flight[name]

    work = Work(name, [handle], [tensor], None, state.timeout, settled, name)
    return work.get_future().then(lambda future: future.value()[0])
