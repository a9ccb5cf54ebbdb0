# SPDX-License-Identifier: Apache-2.0
"""Adds up the gradients of several backward passes in variables; the ranks combine the sums once, in the last pass.

It works in graphs of sessions, in tf.function and eagerly: when the program runs, tf.cond checks a counter. The counter
is equal on all ranks, because all of them make the same number of passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hpccoll import errors
from hpccoll.frontend.reducer import check_passes
from hpccoll.tensorflow.adapter import ADAPTER

__all__ = ["Accumulation", "Passes", "after", "own_variable"]


def own_variable(value: Any, dtype: Any, name: str) -> Any:
    """Make a variable outside of the model, which is not trained, saved or broadcast.

    In the graph of a session tf.compat.v1.local_variables_initializer() initializes it.
    """
    collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    with tf.init_scope():  # a tf.function makes it once
        return tf.compat.v1.Variable(
            value, trainable=False, collections=collections, name=name, dtype=dtype, use_resource=True
        )


def after(operations: Sequence[Any]) -> Any:
    """Return a tensor that exists after these operations of a graph have run; eager ones, or None, have run already."""
    waits = [] if tf.executing_eagerly() else [operation for operation in operations if operation is not None]
    with tf.control_dependencies(waits):
        return tf.constant(True)


class Passes:
    """Counts backward passes, in a variable."""

    def __init__(self, passes: int, name: str) -> None:
        check_passes(passes)
        self.passes, self.name = passes, name
        self._counter: Any = None

    def counter(self) -> Any:
        """Return the variable."""
        if self._counter is None:
            self._counter = own_variable(lambda: tf.zeros([], tf.int64), tf.int64, f"{self.name}/passes")
        return self._counter

    def is_last(self) -> Any:
        """Return a tensor: whether the current pass is the last one of its step."""
        return tf.equal((self.counter().read_value() + 1) % self.passes, 0)

    def between(self) -> Any:
        """Return a tensor: whether no pass has begun since the last step."""
        return tf.equal(self.counter().read_value() % self.passes, 0)

    def count(self) -> Any:
        """Count a completed pass; return the operation that counts it."""
        return self.counter().assign_add(1)


class Accumulation:
    """Adds up gradients over passes, and combines them over the ranks in the last pass."""

    def __init__(self, passes: Passes, *, average: bool, sparse_as_dense: bool) -> None:
        self.passes, self._average, self._sparse_as_dense = passes, average, sparse_as_dense
        self._kept: dict[int, Any] = {}

    def _keeper(self, at: int, gradient: Any) -> Any:
        if at not in self._kept:
            shape, dtype = gradient.shape, gradient.dtype
            self._kept[at] = own_variable(lambda: tf.zeros(shape, dtype), dtype, f"{self.passes.name}/added_up_{at}")
        return self._kept[at]

    def _dense(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices) and not self._sparse_as_dense:
            raise errors.UnsupportedError(
                "backward_passes_per_step: a gradient is an IndexedSlices, which is not added up: use "
                "sparse_as_dense=True"
            )
        return tf.convert_to_tensor(gradient)

    def add(self, gradients: Sequence[Any], combine: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Take the gradients of a pass.

        :param gradients: of the same variables in each call; None stays None
        :param combine: combines the sums over the ranks; called in a branch of the program
        :returns: in the last pass of a step what `combine` returns, else the gradients
        """
        places = [at for at, gradient in enumerate(gradients) if gradient is not None]
        dense = [self._dense(gradients[at]) for at in places]
        kept = [self._keeper(at, gradient) for at, gradient in zip(places, dense, strict=True)]
        sums = [keeper.read_value() + gradient for keeper, gradient in zip(kept, dense, strict=True)]

        def last() -> list[Any]:
            whole: list[Any] = [None] * len(gradients)
            for at, x in zip(places, sums, strict=True):
                whole[at] = ADAPTER.divide(x, self.passes.passes) if self._average else x
            combined = combine(whole)
            return [*(combined[at] for at in places), *map(tf.zeros_like, sums)]

        results = list(tf.cond(self.passes.is_last(), last, lambda: [*dense, *sums]))
        made, left = results[: len(places)], results[len(places) :]
        with tf.control_dependencies(results):
            assigned = [keeper.assign(value) for keeper, value in zip(kept, left, strict=True)]
            assigned.append(self.passes.count())
        with tf.control_dependencies([] if tf.executing_eagerly() else assigned):
            made = [tf.identity(x) for x in made]
        whole: list[Any] = [None] * len(gradients)
        for at, x in zip(places, made, strict=True):
            whole[at] = x
        return whole

    def apply(self, gradients: Sequence[Any], update: Callable[[], Any], skip: Callable[[], Any]) -> Any:
        """Update the variables after the last pass of a step.

        :param gradients: the result of add(), which is called first
        :param update: returns an operation, or None if it is done
        :param skip: the same for the other passes
        :returns: the operation, or None if it is done
        """
        with tf.control_dependencies([] if tf.executing_eagerly() else [x for x in gradients if x is not None]):
            between = self.passes.between()
        made = tf.cond(between, lambda: after([update()]), lambda: after([skip()]))
        return None if tf.executing_eagerly() else tf.group(made)
