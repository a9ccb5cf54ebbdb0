# SPDX-License-Identifier: Apache-2.0
"""The unpublished parts of TensorFlow that this package needs, and the oldest supported TensorFlow.

Decision 45 lists the purpose of each part, and the first version of TensorFlow that has it. tests/tensorflow run with
the oldest and the newest version.
"""

from typing import Any

import tensorflow as tf

from hpccoll import errors

OLDEST = "2.16"

try:
    from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_call_module
    from tensorflow.python.eager.record import could_possibly_record
    from tensorflow.python.framework.auto_control_deps import AutomaticControlDependencies
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext, InXlaContext

    _ = AutomaticControlDependencies.run_independently
except (ImportError, AttributeError) as error:
    raise errors.UnsupportedError(
        f"hpccoll.tensorflow and TensorFlow {tf.__version__} do not fit: {error}. It was made for TensorFlow {OLDEST} "
        "and later: install another TensorFlow, or a newer hpccoll"
    ) from error

__all__ = [
    "OLDEST", "XLA_LIBRARY", "XLA_TABLE", "begins_xla", "could_possibly_record", "in_xla", "independent_of",
    "unconverted", "xla_call_module",
]  # fmt: skip


XLA_LIBRARY, XLA_TABLE = "libtensorflow_cc.so.2", "_ZN3xla3ffi12GetXlaFfiApiEv"
"""TensorFlow's library with XLA, and the C++ name of the function that returns XLA's table for custom calls."""


def in_xla(graph: Any) -> bool:
    """Return whether XLA compiles a graph, or a graph around it."""
    return bool(GraphOrParentsInXlaContext(graph))


def begins_xla(graph: Any) -> bool:
    """Return whether a graph is a whole program of XLA; while it is traced, only the graph around it shows that."""
    return bool(InXlaContext(graph.outer_graph))


unconverted = tf.autograph.experimental.do_not_convert
"""Decorates a function that a program may call in tf.function; without it AutoGraph would rewrite our code, too."""


def independent_of(graph: Any) -> Any:
    """Return the object that orders a graph's stateful operations, or None; run_independently(op) of it exempts one."""
    return getattr(graph, "experimental_acd_manager", None)


# AutoGraph changes the class of an error that it does not know, unless the error has this attribute.
errors.HpccollError.ag_pass_through = True  # type: ignore[attr-defined]
