# SPDX-License-Identifier: Apache-2.0
"""Functions that TensorFlow traces again, instead of using an earlier trace.

One kind are those that have this rank or the number of ranks in them, if these are others now: after a change of an
elastic job their means and derivatives would be those of the old ranks.

The other are functions inside of programs that XLA compiles: each call gets its own names of operations. TensorFlow
traces a function once and inserts the result at each call. XLA does not tell an operation to which call it belongs
(ext/xla), so the operations of two calls had the same name. XLA starts them as soon as their inputs are ready, and
ranks added up values of different calls. So earlier traces are not used here, and graph_names.py numbers the operations
of the whole program. A function that cannot be traced again (a ConcreteFunction, or a function of a saved model) may be
called only once.
"""

import contextlib
import functools
import weakref
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.default_world import current, is_initialized
from hpccoll.tensorflow.internals import in_xla

__all__ = ["contains_place", "outermost", "prepare"]

_having: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""Whether a function's graph has our operations."""
_called: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
"""By program, the graphs of those functions with our operations that it calls."""
_targets: list[str] = []
"""The name of our custom call, once programs of XLA can have our operations."""
_places: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
"""By graph, the rank and the number of ranks that it has as constants."""


def outermost(graph: Any) -> Any:
    """Return the graph of the function that a program calls."""
    while getattr(graph.outer_graph, "building_function", False):
        graph = graph.outer_graph
    return graph


@functools.cache
def prepare(target: str) -> str:
    """Make TensorFlow trace functions inside of programs of XLA at each call; return why that is impossible, or "".

    :param target: the name of our custom call
    """
    try:
        from tensorflow.python.eager.polymorphic_function import atomic_function

        _choose_traces()
        _targets.append(target)
        call = atomic_function.make_call_op_in_graph
    except (ImportError, AttributeError) as error:
        return f"its functions cannot be traced anew: {error}"

    @functools.wraps(call)
    def call_once(atomic: Any, *args: Any, **kwargs: Any) -> Any:
        if _inside() and _has_operations(atomic.graph, target):
            _check_is_first(atomic)
        return call(atomic, *args, **kwargs)

    atomic_function.make_call_op_in_graph = call_once
    return ""


@functools.cache
def _choose_traces() -> None:
    """Make TensorFlow find no trace that must not be used again."""
    from tensorflow.core.function.polymorphism.function_cache import FunctionCache

    lookup = FunctionCache.lookup

    @functools.wraps(lookup)
    def lookup_usable(*args: Any, **kwargs: Any) -> Any:
        found = lookup(*args, **kwargs)
        if found is None or _has_other_place(found.graph):
            return None
        if found.graph in _places:
            contains_place()
        return None if any(_inside() and _has_operations(found.graph, target) for target in _targets) else found

    FunctionCache.lookup = lookup_usable


def contains_place() -> None:
    """Note that this rank or the number of ranks becomes a constant of the current graph."""
    if tf.executing_eagerly() or not is_initialized():
        return
    with contextlib.suppress(
        ImportError, AttributeError
    ):  # another TensorFlow: docs/with-tensorflow.md says what to do
        _choose_traces()
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        _places[graph] = current().rank, current().size
        graph = getattr(graph, "outer_graph", None)


def _has_other_place(graph: Any) -> bool:
    return graph in _places and is_initialized() and _places[graph] != (current().rank, current().size)


def _inside() -> bool:
    return not tf.executing_eagerly() and in_xla(tf.compat.v1.get_default_graph())


def _has_operations(graph: Any, target: str) -> bool:
    if graph not in _having:
        _having[graph] = any(
            op.type == "XlaCallModule" and f'"{target}"'.encode() in op.get_attr("module")
            for op in graph.get_operations()
        ) or any(_has_operations(inner.graph, target) for inner in graph._functions.values())  # noqa: SLF001
    return _having[graph]


def _check_is_first(atomic: Any) -> None:
    called = _called.setdefault(outermost(tf.compat.v1.get_default_graph()), weakref.WeakSet())
    if atomic.graph in called:
        raise errors.InvalidArgumentError(  # TensorFlow would handle an UnsupportedError as a TypeError
            f"the function {atomic.name.decode()} has operations and is called twice in a program for XLA, in which "
            "both calls of an operation would have one name: call the tf.function instead of a ConcreteFunction of it, "
            "pull its gradients once, or use jit_compile=False"
        )
    called.add(atomic.graph)
