# SPDX-License-Identifier: Apache-2.0
"""JAX: collective operations inside and outside of jit, with Horovod's names, and optimizers of optax.

>>> import hpccoll.jax as hvd
>>> hvd.init()
>>> mean = jax.jit(lambda x: hvd.allreduce(x))(jnp.ones(3))
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("hpccoll.jax needs JAX: pip install 'hpccoll[jax]'") from error

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
    broadcast_object,
    broadcast_object_fn,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    process_set_by_id,
    process_set_ids,
    rank,
    remove_process_set,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from hpccoll.jax.operations import (
    Compression,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    exscan,
    gather,
    grouped_allreduce,
    recv,
    reduce,
    reducescatter,
    scan,
    scatter,
    send,
    sendrecv,
)
from hpccoll.jax.training import DistributedOptimizer, allreduce_gradients, broadcast_parameters

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "HostsUpdatedInterrupt", "Max",
    "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "allgather_object", "allreduce",
    "allreduce_gradients", "alltoall", "barrier", "broadcast", "broadcast_object", "broadcast_object_fn",
    "broadcast_parameters", "cross_rank", "cross_size", "exscan", "gather", "global_process_set", "grouped_allreduce",
    "init", "is_homogeneous", "is_initialized", "join", "local_rank", "local_size", "process_set_by_id",
    "process_set_ids", "rank", "recv", "reduce", "reducescatter", "remove_process_set", "scan", "scatter", "send",
    "sendrecv", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip
