# SPDX-License-Identifier: Apache-2.0
"""Loads ext/tensorflow at its first use: our operations for TensorFlow's registry, and memory for results."""

import functools
import importlib
import importlib.util
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.horovod.job import at_shutdown
from hpccoll.tensorflow.internals import OLDEST

__all__ = ["extension", "operations"]

_EXTENSION = "hpccoll._tensorflow"


@functools.cache
def _loaded() -> tuple[Any, Any]:
    """Load the library; return TensorFlow's module with its operations, and the Python extension in the same file."""
    found = importlib.util.find_spec(_EXTENSION)
    if found is None or found.origin is None:
        raise errors.UnsupportedError(f"{_EXTENSION} was not built: build hpccoll anew")
    made = tf.load_op_library(found.origin)  # first: operations register themselves at the load
    module = importlib.import_module(_EXTENSION)
    at_shutdown(module.free_idle_memory)
    return made, module


def extension() -> Any:
    """Return hpccoll._tensorflow, for memory, also if this TensorFlow cannot have our operations in graphs.

    :raises UnsupportedError: it was not built
    """
    return _loaded()[1]


@functools.cache
def operations() -> Any:
    """Return the module of TensorFlow's functions that put our operations into a graph.

    :raises UnsupportedError: this TensorFlow lacks something
    """
    made, module = _loaded()
    if module.problem or not hasattr(made, "hpccoll_allreduce"):
        raise errors.UnsupportedError(
            f"operations in graphs do not run with TensorFlow {tf.__version__}: "
            f"{module.problem or f'{_EXTENSION} was imported before TensorFlow'}. hpccoll was made for TensorFlow "
            f"{OLDEST} and later; outside of tf.function all operations work"
        )
    return made
