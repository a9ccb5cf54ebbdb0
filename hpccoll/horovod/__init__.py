# SPDX-License-Identifier: Apache-2.0
"""The common part of Horovod's interfaces for all frameworks.

job.py                             init, rank, size, join, timelines
operations.py, asynchronous.py     the functions for tensors, over any framework's adapter
rooted.py                          reduce, gather and scatter, which Horovod does not have
environment.py                     HOROVOD_ variables
built.py, errors.py                Horovod's questions about transports; its exceptions

Operations themselves, process sets and object functions are in hpccoll.frontend.
"""

from hpccoll.frontend.objects import allgather_object, broadcast_object, broadcast_object_fn
from hpccoll.frontend.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    process_set_by_id,
    process_set_ids,
    remove_process_set,
)
from hpccoll.frontend.reductions import Adasum, Average, Max, Min, Product, Sum
from hpccoll.horovod.built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from hpccoll.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt
from hpccoll.horovod.job import (
    barrier,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

__all__ = [
    "Adasum", "Average", "HorovodInternalError", "HostsUpdatedInterrupt", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "allgather_object", "barrier", "broadcast_object", "broadcast_object_fn", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "init",
    "is_homogeneous", "is_initialized", "join", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "process_set_by_id", "process_set_ids", "rank", "remove_process_set",
    "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip
