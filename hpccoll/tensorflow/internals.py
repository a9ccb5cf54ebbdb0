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
    from tensorflow.python.eager.record import could_possibly_record
    from tensorflow.python.framework.auto_control_deps import AutomaticControlDependencies
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    _ = AutomaticControlDependencies.run_independently
except (ImportError, AttributeError) as error:
    raise errors.UnsupportedError(
        f"hpccoll.tensorflow and TensorFlow {tf.__version__} do not fit: {error}. It was made for TensorFlow {OLDEST} "
        "and later: install another TensorFlow, or a newer hpccoll"
    ) from error

__all__ = ["OLDEST", "check_no_xla", "could_possibly_record", "independent_of", "unconverted"]


def check_no_xla() -> None:
    """Check that the current graph is not compiled by XLA.

    :raises UnsupportedError: (a ValueError) it is; TensorFlow would say "unsupported operations" later
    """
    if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise errors.UnsupportedError(
            "this program is compiled by XLA, which cannot run the operations of hpccoll.tensorflow: use "
            "tf.function(jit_compile=False), model.compile(..., jit_compile=False), or call them outside of it"
        )


unconverted = tf.autograph.experimental.do_not_convert
"""Decorates each function that a program may call in tf.function: AutoGraph would rewrite our code, too."""


def independent_of(graph: Any) -> Any:
    """Return what orders a graph's operations with effects: run_independently(op) frees one. None: nothing does."""
    return getattr(graph, "experimental_acd_manager", None)


# AutoGraph makes another class of an error that it does not know, unless the error says that it must not.
errors.HpccollError.ag_pass_through = True  # type: ignore[attr-defined]
