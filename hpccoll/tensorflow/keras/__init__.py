# SPDX-License-Identifier: Apache-2.0
"""Keras 3 for programs that have imported horovod.tensorflow.keras: hpccoll.keras, with that module's arguments.

>>> import hpccoll.tensorflow.keras as hvd  # in place of import horovod.tensorflow.keras as hvd
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hpccoll.frontend.compression import Compressor, NoneCompressor
from hpccoll.frontend.reductions import Op
from hpccoll.horovod import Average, ProcessSet, global_process_set
from hpccoll.keras import shared_names as _shared_names
from hpccoll.keras.optimizer import DistributedOptimizer as _DistributedOptimizer
from hpccoll.keras.shared_names import *  # noqa: F403 - all names of its __all__
from hpccoll.not_there import no_name as _no_name
from hpccoll.tensorflow.keras import callbacks, elastic

__all__ = ["DistributedOptimizer", "callbacks", "elastic"]
__all__ += _shared_names.__all__

if tf.keras.__version__.startswith("2."):
    raise ImportError(
        "tf.keras is Keras 2 here, because TF_USE_LEGACY_KERAS is set: hpccoll.tensorflow.keras is for Keras 3. Unset "
        "it, or train with hpccoll.tensorflow.DistributedGradientTape"
    )


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Op = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like `optimizer` that updates with gradients reduced over the ranks.

    It is hpccoll.keras.DistributedOptimizer, which says what the parameters mean; only their order differs, as between
    horovod.keras and horovod.tensorflow.keras.
    """
    return _DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        num_groups, groups, backward_passes_per_step, average_aggregated_gradients, process_set, scale_local_gradients,
    )  # fmt: skip


def __getattr__(name: str) -> Any:
    """Raise an error that names the replacement of a missing name of Horovod's."""
    raise _no_name(__name__, name)
