# SPDX-License-Identifier: Apache-2.0
"""The order of the operations of a program that XLA compiles, so that none waits for memory that another one uses.

XLA begins a step when its values are there and the memory that it writes to is free, and plans memory by an order of
its own, which differs between ranks. So the tensors of an operation could wait for the end of another operation, and on
the next rank the other way round: a right program stood still. As in hpccoll/jax/order.py, an operation has a level:
how many operations come before it of which each needs the one before. No operation is finished, so that its results may
be used and its memory used again, before all of its level are ready. So what makes the tensors of an operation waits
for lower levels alone.

Here a program is not known as a whole, so this is done for each operation when it is traced: the last step of the
others in its level gets another input. Loops and branches are graphs by themselves. So are functions inside of a
program, which XLA puts where they are called: their operations are beside others that they cannot know, and have no
levels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hpccoll.tensorflow.internals import begins_xla

__all__ = ["finish", "has_levels"]

_ATTRIBUTE = "_hpccoll_levels"


_BODIES = ("WhileBodyFuncGraph", "WhileCondFuncGraph", "CondBranchFuncGraph")


def has_levels() -> bool:
    """Say whether the current graph is that of a whole program, or of loops and branches in it."""
    graph = tf.compat.v1.get_default_graph()
    while type(graph).__name__ in _BODIES:
        graph = graph.outer_graph
    return begins_xla(graph)


class _Levels:
    """The levels of a graph's operations, as far as it is traced. It lives as long as the graph."""

    def __init__(self) -> None:
        self.ready: dict[int, Any] = {}
        """By level, a byte that is there when all operations of ours are ready."""
        self.finished: defaultdict[int, list[Any]] = defaultdict(list)
        """By level, the last steps."""
        self._of: dict[Any, int] = {}
        self._resources: dict[Any, int] = {}
        """By handle, the level of what was done with the variable: a later read may depend on it."""
        self._seen = 0

    def look(self, graph: Any) -> None:
        """Find the levels of what was traced since the last look. It stands in the graph behind what it needs."""
        traced = graph.get_operations()
        for op in traced[self._seen :]:
            handles = [tensor.ref() for tensor in op.inputs if tensor.dtype == tf.resource]
            level = max([0, *(self._resources.get(handle, 0) for handle in handles), *map(self.of, _needs(op))])
            level = self._of.setdefault(op, level)
            self._resources.update(dict.fromkeys(handles, level))
        self._seen = len(traced)

    def of(self, op: Any) -> int:
        """Return the level of an operation that needs what this one gives."""
        return self._of.get(op, 0)

    def add(self, op: Any, level: int) -> None:
        """Note the last step of an operation of ours of this level."""
        self.finished[level].append(op)
        self._of[op] = level + 1


def _needs(op: Any) -> list[Any]:
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def finish(own: Any, last_step: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    """Put the last step of an operation of ours into the current graph.

    :param own: a byte that is there when its tensors are
    :param last_step: puts it there, behind a byte, and returns TensorFlow's operation
    :returns: it, and what else was put there
    """
    graph = tf.compat.v1.get_default_graph()
    levels = getattr(graph, _ATTRIBUTE, None)
    if levels is None:
        levels = _Levels()
        setattr(graph, _ATTRIBUTE, levels)
    levels.look(graph)
    level, others = levels.of(own.op), []
    ready = own
    if level in levels.ready:
        ready = tf.raw_ops.AddV2(x=levels.ready[level], y=own)
        others.append(ready.op)
    for op in levels.finished[level]:
        op._update_input(len(op.inputs) - 1, ready)  # noqa: SLF001 - TensorFlow's own loops do it
    levels.ready[level] = ready
    made = last_step(ready)
    levels.add(made, level)
    return made, others
