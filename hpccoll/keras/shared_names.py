# SPDX-License-Identifier: Apache-2.0
"""The names that hpccoll.keras and hpccoll.tensorflow.keras share; DistributedOptimizer has other arguments in each."""

from hpccoll import horovod as _horovod
from hpccoll.horovod import *  # noqa: F403 - all names of its __all__
from hpccoll.keras.compression import Compression
from hpccoll.keras.optimizer import PartialDistributedOptimizer
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

__all__ = [
    "Compression", "PartialDistributedOptimizer", "allgather", "allreduce", "broadcast", "broadcast_global_variables",
    "broadcast_model", "broadcast_variables", "load_model", "reducescatter",
]  # fmt: skip
__all__ += _horovod.__all__
