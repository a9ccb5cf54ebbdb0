# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.mpi_ops under its name: the functions for tensors, init(), ranks, process sets."""

from typing import Any

import tensorflow as tf

from hpccoll import horovod as _horovod
from hpccoll.horovod import *  # noqa: F403 - all names of its __all__
from hpccoll.not_there import no_name
from hpccoll.tensorflow.facts import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from hpccoll.tensorflow.functions import allgather_object, broadcast_, broadcast_object, broadcast_object_fn
from hpccoll.tensorflow.operations import (
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

__all__ = [
    "allgather", "allgather_object", "allreduce", "alltoall", "barrier", "broadcast", "broadcast_", "broadcast_object",
    "broadcast_object_fn", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "join", "local_rank_op",
    "local_size_op", "process_set_included_op", "rank_op", "reducescatter", "size_op",
]  # fmt: skip
__all__ += sorted({*_horovod.__all__} - {*__all__})

_executing_eagerly = tf.executing_eagerly


def __getattr__(name: str) -> Any:
    """Raise an error that names the replacement of a missing name of Horovod's."""
    raise no_name(__name__, name)
