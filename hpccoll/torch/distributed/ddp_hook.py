# SPDX-License-Identifier: Apache-2.0
"""DDP's gradients through hpccoll while the rest of the program keeps its backend.

>>> hpccoll.init()
>>> model.register_comm_hook(None, hpccoll.torch.ddp_hook.allreduce_hook)
>>> model.register_comm_hook(ddp_hook.State(compression=hpccoll.compression.FP16), ddp_hook.allreduce_hook)
"""

import dataclasses
import weakref
from functools import partial

import torch
from torch._C._distributed_c10d import GradBucket

from hpccoll.compression import Compression
from hpccoll.default_world import current
from hpccoll.frontend.sequence_names import SequenceNames
from hpccoll.reductions import Reduction
from hpccoll.torch.adapter import ADAPTER
from hpccoll.torch.distributed.work import Work
from hpccoll.worlds import World

__all__ = ["State", "allreduce_hook"]


@dataclasses.dataclass(frozen=True)
class State:
    """The options of the hook."""

    world: World | None = None
    """The ranks of DDP's process group, in its order; default: the World of hpccoll.init()."""
    compression: Compression | None = None
    """The narrower dtype in which float32 and float64 gradients travel."""
    timeout: float = 1800.0
    """Seconds after which a bucket fails."""


NAMES = 4
"""Each bucket cycles through this many names: one backward pass may go through several models with equal buckets."""


_sequence_names: weakref.WeakKeyDictionary[World, SequenceNames] = weakref.WeakKeyDictionary()


def allreduce_hook(state: State | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients over the ranks, in place.

    :param state: the hook's options; default: State()
    :param bucket: DDP's bucket; its buffer is overwritten with the average
    :returns: a future of the bucket's tensor
    """
    state = state or State()
    world, tensor = current(state.world), bucket.buffer()
    x = ADAPTER.buffer(ADAPTER.contiguous(tensor))
    names = _sequence_names.setdefault(world, SequenceNames(NAMES))
    name = names.next(f"DDP bucket {bucket.index()} of {tensor.numel()} elements, number")
    handle = names.begin(
        name,
        lambda name: world.core.collective(
            "allreduce", x, name, x, False, Reduction.AVERAGE, compression=state.compression
        ),
        state.timeout,
    )
    settled = partial(names.settle, {name: handle})
    work = Work(name, [handle], [tensor], None, state.timeout, settled, name)
    return work.get_future().then(lambda future: future.value()[0])
