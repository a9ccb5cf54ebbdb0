# SPDX-License-Identifier: Apache-2.0
"""Names of operations in graphs: fixed when a program is traced, and different from one another in each graph.

A name that the caller gives stands in TensorFlow's name scope, and gets a number if the graph has it already. A call
without a name is called after its place in the source, since the order in which operations run, or in which a program
is traced, says nothing about other ranks.

A function, a branch or the body of a loop is a graph of its own. When it runs, the kernel puts behind the name where in
the program it is called (ext/tensorflow/kernels.c). A program that XLA compiles has no such kernels, so its graphs are
numbered together, and functions in it are traced anew for each call (retraced.py).
"""

from __future__ import annotations

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
_AUTOGRAPH = "__autograph_generated_file"  # what follows differs from process to process
_counters: weakref.WeakKeyDictionary[Any, Counter[tuple[int, str]]] = weakref.WeakKeyDictionary()


def scoped(name: str | None, ignore_name_scope: bool) -> str | None:
    """Return the name of a call with TensorFlow's name scope; eager calls have none.

    :raises InvalidArgumentError: (a ValueError) the name is no text
    """
    if names.request("", name) is None or ignore_name_scope or tf.executing_eagerly():
        return name
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    return f"{scope}/{name}" if scope else name


def unique(operation: str, name: str | None, process_set: int) -> str:
    """Return the name under which an operation of the current graph is known to all ranks of its set.

    :param process_set: its number; other sets have other ranks, which do not have these operations
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
