# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for PyTorch. Programs use its names from hpccoll.torch.

    operations.py        the functions for tensors, and their gradients
    functions.py         broadcasts of parameters and optimizers
    optimizer.py         DistributedOptimizer; adasum_steps.py for op=Adasum
    sync_batch_norm.py   SyncBatchNorm

hpccoll.horovod and hpccoll.frontend have the rest.
"""

from hpccoll import horovod as _horovod
from hpccoll.frontend.handles import poll, synchronize
from hpccoll.horovod import *  # noqa: F403 - all names of its __all__
from hpccoll.torch.horovod.functions import broadcast_optimizer_state, broadcast_parameters
from hpccoll.torch.horovod.operations import (
    Compression,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    gather,
    gather_async,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reduce,
    reduce_async,
    reducescatter,
    reducescatter_async,
    scatter,
    scatter_async,
    sparse_allreduce_async,
)
from hpccoll.torch.horovod.optimizer import DistributedOptimizer
from hpccoll.torch.horovod.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression", "DistributedOptimizer", "SyncBatchNorm", "allgather", "allgather_async", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "broadcast_optimizer_state", "broadcast_parameters", "gather", "gather_async",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async",
    "poll", "reduce", "reduce_async", "reducescatter", "reducescatter_async", "scatter", "scatter_async",
    "sparse_allreduce_async", "synchronize",
]  # fmt: skip
__all__ += _horovod.__all__
