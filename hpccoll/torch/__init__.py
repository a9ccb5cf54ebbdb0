# SPDX-License-Identifier: Apache-2.0
"""PyTorch: Horovod's interface, and a backend of torch.distributed.

>>> import hpccoll.torch as hvd  # in place of import horovod.torch as hvd
>>> torch.distributed.init_process_group("hpccoll")  # needs no import but torch (hpccoll_torch_backend)
"""

try:
    import torch.distributed
except ImportError as error:
    raise ImportError("hpccoll.torch needs PyTorch: pip install 'hpccoll[torch]'") from error

from typing import Any

from hpccoll.not_there import no_name as _no_name
from hpccoll.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm
from hpccoll.torch.horovod import (
    Adasum,
    Average,
    Compression,
    DistributedOptimizer,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    SyncBatchNorm,
    add_process_set,
    allgather,
    allgather_async,
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gather,
    gather_async,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    poll,
    process_set_by_id,
    process_set_ids,
    rank,
    reduce,
    reduce_async,
    reducescatter,
    reducescatter_async,
    remove_process_set,
    rocm_built,
    scatter,
    scatter_async,
    shutdown,
    size,
    sparse_allreduce_async,
    start_timeline,
    stop_timeline,
    synchronize,
)
from hpccoll.torch.job import init

if torch.distributed.is_available():
    from hpccoll.torch.distributed import ddp_hook as ddp_hook
    from hpccoll.torch.distributed import register

    register()

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "HostsUpdatedInterrupt", "Max",
    "Min", "ProcessSet", "Product", "Sum", "SyncBatchNorm", "add_process_set", "allgather", "allgather_async",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async",
    "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_object_fn", "broadcast_optimizer_state", "broadcast_parameters", "ccl_built", "compression",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "functions", "gather", "gather_async",
    "global_process_set", "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async",
    "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_",
    "grouped_reducescatter", "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_ops", "mpi_threads_supported", "nccl_built",
    "optimizer", "poll", "process_set_by_id", "process_set_ids", "rank", "reduce", "reduce_async", "reducescatter",
    "reducescatter_async", "remove_process_set", "rocm_built", "scatter", "scatter_async", "shutdown", "size",
    "sparse_allreduce_async", "start_timeline", "stop_timeline", "sync_batch_norm", "synchronize",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Say of a name of Horovod's that is not here what to use instead."""
    raise _no_name(__name__, name)
