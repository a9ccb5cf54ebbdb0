# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: collective operations on tensors, with Horovod's names.

>>> import hpccoll.tensorflow as hvd
>>> hvd.init()
>>> mean = hvd.allreduce(tf.ones(3))
>>> tape = hvd.DistributedGradientTape(tape)
"""

try:
    import tensorflow as _tensorflow  # noqa: F401
except ImportError as error:
    raise ImportError("hpccoll.tensorflow needs TensorFlow: pip install 'hpccoll[tensorflow]'") from error

from typing import Any

from hpccoll.horovod import (
    Adasum,
    Average,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_by_id,
    process_set_ids,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hpccoll.not_there import no_name as _no_name
from hpccoll.tensorflow import compression, elastic, functions, mpi_ops
from hpccoll.tensorflow import gradients as _gradients  # noqa: F401 - registers the derivatives
from hpccoll.tensorflow.facts import (
    gpu_available,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from hpccoll.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from hpccoll.tensorflow.mpi_ops import _executing_eagerly as _executing_eagerly
from hpccoll.tensorflow.operations import (
    Compression,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from hpccoll.tensorflow.optimizer import DistributedOptimizer
from hpccoll.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape

__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape",
    "DistributedOptimizer", "HorovodInternalError", "HostsUpdatedInterrupt", "Max", "Min",
    "PartialDistributedGradientTape", "ProcessSet", "Product", "Sum", "add_process_set", "allgather",
    "allgather_object", "allreduce", "alltoall", "barrier", "broadcast", "broadcast_", "broadcast_global_variables",
    "broadcast_object", "broadcast_object_fn", "broadcast_variables", "ccl_built", "compression", "cross_rank",
    "cross_size", "cuda_built", "ddl_built", "elastic", "functions", "global_process_set", "gloo_built", "gloo_enabled",
    "gpu_available", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "init", "is_homogeneous",
    "is_initialized", "join", "local_rank", "local_rank_op", "local_size", "local_size_op", "mpi_built", "mpi_enabled",
    "mpi_ops", "mpi_threads_supported", "nccl_built", "process_set_by_id", "process_set_ids", "process_set_included_op",
    "rank", "rank_op", "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "size_op",
    "start_timeline", "stop_timeline",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import Keras when a layer is asked for, and not before: it takes seconds."""
    if name != "SyncBatchNormalization":
        raise _no_name(__name__, name)
    from hpccoll.tensorflow.sync_batch_norm import SyncBatchNormalization

    return SyncBatchNormalization
