# SPDX-License-Identifier: Apache-2.0
"""rank(), size() and the like as tensors whose values are found when a program runs, not when it is traced."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from hpccoll.frontend.process_sets import ProcessSet, process_set_by_id, world_of
from hpccoll.horovod import job
from hpccoll.tensorflow import xla
from hpccoll.tensorflow.retraced import contains_place

__all__ = [
    "gpu_available", "local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "ranks_of", "size_op",
]  # fmt: skip


def _fact(function: Callable[[], Any], name: str | None) -> Any:
    result = tf.numpy_function(lambda: np.int32(function()), [], tf.int32, stateful=True, name=name)
    result.set_shape([])
    return result


def ranks_of(process_set: ProcessSet) -> Any:
    """Return the number of processes in a process set: now, or in a graph as a tensor, found when it is evaluated.

    XLA cannot evaluate it later: a program that it compiles has the number at the time of its compilation.

    :raises InvalidArgumentError: (a ValueError) this rank is not in the process set
    """
    size = world_of(process_set).size
    if xla.compiles():
        contains_place()
        return size
    return size if tf.executing_eagerly() else size_op(process_set.process_set_id or 0)


def rank_op(name: str | None = None) -> Any:
    """Return the number of this process in the job as an int32 tensor, found when it is evaluated.

    :param name: the name of TensorFlow's operation
    """
    return _fact(job.rank, name)


def local_rank_op(name: str | None = None) -> Any:
    """Return the number of this process on its node as an int32 tensor, found when it is evaluated.

    :param name: the name of TensorFlow's operation
    """
    return _fact(job.local_rank, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of processes in a process set as an int32 tensor, found when it is evaluated.

    :param process_set_id: the number of the set; 0: all ranks
    :param name: the name of TensorFlow's operation
    """
    return _fact(lambda: process_set_by_id(process_set_id).size(), name)


def local_size_op(name: str | None = None) -> Any:
    """Return the number of processes on this node as an int32 tensor, found when it is evaluated.

    :param name: the name of TensorFlow's operation
    """
    return _fact(job.local_size, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return whether this process is in a process set as an int32 tensor, 0 or 1, found when it is evaluated.

    :param process_set_id: the number of the set
    :param name: the name of TensorFlow's operation
    """
    return _fact(lambda: process_set_by_id(process_set_id).included(), name)


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Say whether TensorFlow finds a GPU.

    :param ext_base_name: has no effect; Horovod has this parameter
    :param verbose: not used either
    """
    del ext_base_name, verbose
    return bool(tf.config.list_physical_devices("GPU"))
