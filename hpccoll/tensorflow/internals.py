# SPDX-License-Identifier: Apache-2.0
"""What TensorFlow does not publish and this package needs, and the oldest TensorFlow.

Decision 45 says what each is for, and since which version TensorFlow has it. tests/tensorflow run with the oldest and
the newest.
"""

from __future__ import annotations

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
"""Where TensorFlow has XLA, and the C++ name of the function that returns XLA's table for custom calls."""


def in_xla(graph: Any) -> bool:
    """Say whether XLA compiles a graph, or one that it is a part of."""
    return bool(GraphOrParentsInXlaContext(graph))


def begins_xla(graph: Any) -> bool:
    """Say whether a graph is the whole of what XLA compiles, which only the graph around it says while it is traced."""
    return bool(InXlaContext(graph.outer_graph))


unconverted = tf.autograph.experimental.do_not_convert
"""Decorates a function that a program may call in tf.function: AutoGraph would rewrite our code, too."""


def independent_of(graph: Any) -> Any:
    """Return what orders a graph's operations with effects: run_independently(op) frees one. None: nothing does."""
    return getattr(graph, "experimental_acd_manager", None)


# AutoGraph makes another class of an error that it does not know, unless the error says that it must not.
errors.HpccollError.ag_pass_through = True  # type: ignore[attr-defined]
