# SPDX-License-Identifier: Apache-2.0
"""Names of operations in graphs: fixed when a program is traced, and unique in each graph.

TensorFlow's name scope is put before the caller's name, and a number is added if the graph has that name already. A
call without a name gets its place in the source as its name, because other ranks may run operations, or trace the
program, in another order.

A function, a branch or the body of a loop has a separate graph. When it runs, the kernel appends the callers of this
graph to the name (ext/tensorflow/kernels.c). A program that XLA compiles has no such kernels, so the operations of all
its graphs are numbered together, and each call of a function in it is traced again (retraced.py).
"""

import os
import sys
import weakref
from collections import Counter
from typing import Any

import tensorflow as tf

from hpccoll.frontend import names
from hpccoll.tensorflow.internals import in_xla
from hpccoll.tensorflow.retraced import outermost

__all__ = ["scoped", "unique"]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TENSORFLOWS = os.path.dirname(os.path.abspath(tf.__file__)) + os.sep
_AUTOGRAPH = "__autograph_generated_file"  # the rest of the name differs between processes
_counters: weakref.WeakKeyDictionary[Any, Counter[tuple[int, str]]] = weakref.WeakKeyDictionary()


def scoped(name: str | None, ignore_name_scope: bool) -> str | None:
    """Return the name of a call with TensorFlow's name scope; eager calls have none.

    :raises InvalidArgumentError: (a ValueError) the name is no string
    """
    if names.request("", name) is None or ignore_name_scope or tf.executing_eagerly():
        return name
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    return f"{scope}/{name}" if scope else name


def unique(operation: str, name: str | None, process_set: int) -> str:
    """Return the name under which an operation of the current graph is known to all ranks of its set.

    :param process_set: its number; each set numbers its names separately, because the ranks of other sets do not have
        these operations
    """
    whole = names.request(operation, name) or f"{operation} at {_place()}"
    graph = tf.compat.v1.get_default_graph()
    counter = _counters.setdefault(outermost(graph) if in_xla(graph) else graph, Counter())
    counter[process_set, whole] += 1
    return names.occurrence(whole, counter[process_set, whole])


def _place() -> str:
    frame = sys._getframe()  # noqa: SLF001 - this is how inspect does it
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith((_OURS, _TENSORFLOWS)):
        frame = frame.f_back
    code = frame.f_code
    file = os.path.basename(code.co_filename)
    if file.startswith(_AUTOGRAPH):
        file = "autograph"
    return f"{file}:{frame.f_lineno} ({code.co_name})"
