# SPDX-License-Identifier: Apache-2.0
"""Keras 3 with the backends torch, jax and tensorflow, under Horovod's names.

>>> import hpccoll.keras as hvd  # in place of import horovod.keras as hvd
>>> hvd.init()
>>> model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())), "mse")
>>> model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

    optimizer.py     DistributedOptimizer
    backends.py      the front end whose operations carry the gradients
    callbacks.py     what fit() calls
    values.py        values and variables between ranks
    compiling.py     compile() refuses what cannot run
    saving.py        load_model
    elastic.py       elastic jobs
"""

from typing import Any

try:
    import keras as _keras
except ImportError as error:
    raise ImportError("hpccoll.keras needs Keras 3: pip install 'hpccoll[keras]'") from error

if tuple(int(part) for part in _keras.__version__.split(".")[:2]) < (3, 5):
    raise ImportError(
        f"hpccoll.keras needs Keras 3.5 or later, and this is {_keras.__version__}: pip install --upgrade keras"
    )

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
    allgather_object,
    barrier,
    broadcast_object,
    broadcast_object_fn,
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
    join,
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
from hpccoll.keras import callbacks, elastic
from hpccoll.keras.compression import Compression
from hpccoll.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from hpccoll.keras.saving import load_model
from hpccoll.keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_model,
    broadcast_variables,
    reducescatter,
)
from hpccoll.not_there import no_name as _no_name

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "HostsUpdatedInterrupt", "Max",
    "Min", "PartialDistributedOptimizer", "ProcessSet", "Product", "Sum", "add_process_set", "allgather",
    "allgather_object", "allreduce", "barrier", "broadcast", "broadcast_global_variables", "broadcast_model",
    "broadcast_object", "broadcast_object_fn", "broadcast_variables", "callbacks", "ccl_built", "cross_rank",
    "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init",
    "is_homogeneous", "is_initialized", "join", "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_set_by_id", "process_set_ids", "rank", "reducescatter",
    "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Say of a name of Horovod's that is not here what to use instead."""
    raise _no_name(__name__, name)
