# SPDX-License-Identifier: Apache-2.0
"""Our operations in TensorFlow's registry: loads ext/tensorflow, once, when the first graph needs it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.tensorflow.internals import OLDEST

__all__ = ["operations"]

_EXTENSION = "hpccoll._tensorflow"


@functools.cache
def operations() -> Any:
    """Return the module of TensorFlow's functions that put operations of ours into a graph.

    :raises UnsupportedError: this TensorFlow lacks something
    """
    found = importlib.util.find_spec(_EXTENSION)
    if found is None or found.origin is None:
        raise errors.UnsupportedError(f"{_EXTENSION} was not built: build hpccoll anew")
    made = tf.load_op_library(found.origin)  # first: TensorFlow takes what registers itself while it loads the file
    problem = importlib.import_module(_EXTENSION).problem
    if problem or not hasattr(made, "hpccoll_allreduce"):
        raise errors.UnsupportedError(
            f"operations in graphs do not run with TensorFlow {tf.__version__}: "
            f"{problem or f'{_EXTENSION} was imported before TensorFlow'}. hpccoll was made for TensorFlow {OLDEST} "
            "and later; outside of tf.function all operations work"
        )
    return made
