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

from hpccoll import horovod as _horovod
from hpccoll.horovod import *  # noqa: F403 - all names of its __all__
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
    "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "PartialDistributedGradientTape", "allgather", "allgather_object", "allreduce", "alltoall", "barrier", "broadcast",
    "broadcast_", "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables",
    "compression", "elastic", "functions", "gpu_available", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "join", "local_rank_op", "local_size_op", "mpi_ops", "process_set_included_op", "rank_op",
    "reducescatter", "size_op",
]  # fmt: skip
__all__ += _horovod.__all__


def __getattr__(name: str) -> Any:
    """Import Keras when a layer is asked for, and not before: it takes seconds."""
    if name != "SyncBatchNormalization":
        raise _no_name(__name__, name)
    from hpccoll.tensorflow.sync_batch_norm import SyncBatchNormalization

    return SyncBatchNormalization
