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

from hpccoll.not_there import no_name as _no_name
from hpccoll.tensorflow import compression, elastic, functions, mpi_ops
from hpccoll.tensorflow import gradients as _gradients  # noqa: F401 - registers the derivatives
from hpccoll.tensorflow.facts import gpu_available
from hpccoll.tensorflow.functions import BroadcastGlobalVariablesHook, broadcast_global_variables, broadcast_variables
from hpccoll.tensorflow.mpi_ops import *  # noqa: F403 - all names of its __all__
from hpccoll.tensorflow.mpi_ops import _executing_eagerly as _executing_eagerly
from hpccoll.tensorflow.operations import Compression
from hpccoll.tensorflow.optimizer import DistributedOptimizer
from hpccoll.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "PartialDistributedGradientTape", "broadcast_global_variables", "broadcast_variables", "compression", "elastic",
    "functions", "gpu_available", "mpi_ops",
]  # fmt: skip
__all__ += mpi_ops.__all__


def __getattr__(name: str) -> Any:
    """Import Keras when a layer is asked for, and not before: it takes seconds."""
    if name != "SyncBatchNormalization":
        raise _no_name(__name__, name)
    from hpccoll.tensorflow.sync_batch_norm import SyncBatchNormalization

    return SyncBatchNormalization
