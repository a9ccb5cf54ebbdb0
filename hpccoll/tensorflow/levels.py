# SPDX-License-Identifier: Apache-2.0
"""The order of the operations of a program that XLA compiles: none waits for memory that another one uses.

XLA starts a step when its inputs are computed and the memory for its results is free. It plans memory in an order that
differs between ranks. So on one rank the inputs of operation A could wait for the end of B, while on another rank the
inputs of B waited for the end of A: a correct program deadlocked. As in hpccoll/jax/order.py, each operation has a
level: the length of the longest chain of operations that it depends on. An operation finishes, so that its results are
used and its memory is reused, only after all operations of its level are ready. So the inputs of an operation wait for
lower levels only.

Here the whole program is not known in advance. So the last steps of a level wait for one byte, its gate, and when an
operation of the level is traced, the gate gets another input. Loops and branches are separate graphs. Functions inside
of a program are separate graphs, too, and XLA inserts them where they are called: their operations run beside others
that they do not know, and have no levels.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hpccoll.tensorflow.internals import begins_xla

__all__ = ["finish", "has_levels"]

_ATTRIBUTE = "_hpccoll_levels"


_BODIES = ("WhileBodyFuncGraph", "WhileCondFuncGraph", "CondBranchFuncGraph")


def has_levels() -> bool:
    """Return whether the current graph is a whole program, or a loop or branch in one."""
    graph = tf.compat.v1.get_default_graph()
    while type(graph).__name__ in _BODIES:
        graph = graph.outer_graph
    return begins_xla(graph)


class _Levels:
    """The levels of the operations that were traced into a graph so far; it lives as long as the graph."""

    def __init__(self) -> None:
        self.ready: dict[int, Any] = {}
        """By level, a byte that is computed when all our operations of this level are ready."""
        self.gates: dict[int, Any] = {}
        """By level, the same byte for the last steps of our operations."""
        self._of: dict[Any, int] = {}
        self._resources: dict[Any, int] = {}
        """By a variable's handle, the level of the last operation on it: a later read may depend on that."""
        self._seen = 0

    def look(self, graph: Any) -> None:
        """Find the levels of operations that were traced since the last call; a graph lists inputs before their use."""
        traced = graph.get_operations()
        for op in traced[self._seen :]:
            handles = [tensor.ref() for tensor in op.inputs if tensor.dtype == tf.resource]
            needs = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
            level = max([0, *(self._resources.get(handle, 0) for handle in handles), *map(self.of, needs)])
            level = self._of.setdefault(op, level)
            self._resources.update(dict.fromkeys(handles, level))
        self._seen = len(traced)

    def of(self, op: Any) -> int:
        """Return the level of an operation that depends on this one."""
        return self._of.get(op, 0)

    def finishes(self, op: Any, level: int) -> None:
        """Note the last step of one of our operations of this level."""
        self._of[op] = level + 1


def finish(inputs_ready: Any, last_step: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    """Put the last step of one of our operations into the current graph.

    :param inputs_ready: a byte that is computed when the tensors of the operation are
    :param last_step: makes the last step, which waits for the byte that it gets, and returns TensorFlow's operation
    :returns: that operation, and the other operations that were put into the graph
    """
    graph = tf.compat.v1.get_default_graph()
    levels = getattr(graph, _ATTRIBUTE, None)
    if levels is None:
        levels = _Levels()
        setattr(graph, _ATTRIBUTE, levels)
    levels.look(graph)
    level = levels.of(inputs_ready.op)
    if level in levels.ready:
        levels.ready[level] = other = tf.raw_ops.AddV2(x=levels.ready[level], y=inputs_ready)
        levels.gates[level].op._update_input(0, other)  # noqa: SLF001 - TensorFlow's own loops do it
    else:
        levels.ready[level] = inputs_ready
        levels.gates[level] = other = tf.raw_ops.Identity(input=inputs_ready)
    made = last_step(levels.gates[level])
    levels.finishes(made, level)
    return made, [other.op]
