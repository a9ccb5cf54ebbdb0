# SPDX-License-Identifier: Apache-2.0
"""The batches of a rank: a shuffled stream of rows, cut so that all ranks make the same number of steps.

**The rule.** An epoch has as many steps as the rank with the most rows needs for batches of `batch_size` rows. Each
rank cuts its rows into as many batches, whose sizes differ by at most one row. So each row is used once per epoch. A
step's gradient is the mean over the rows of all ranks: a rank multiplies its loss, a mean over its own rows, by its
share of them. A rank with fewer rows than steps has steps without rows of its own; there it computes with a row of
weight 0.

**The order.** An epoch takes the chunks (record batches, row groups) in random order, and shuffles the rows inside of
windows of a given number of rows. So a rank holds a window in memory, however many rows it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.columns import to_array

__all__ = ["WINDOW", "Arrays", "Batch", "Chunk", "Cut", "Order", "batches"]

WINDOW = 65536
"""Rows that are shuffled with each other."""

Arrays = dict[str, NDArray[Any]]
"""Columns by name: arrays whose first dimension is rows."""


class Chunk(NamedTuple):
    """Rows that are read at once."""

    rows: int
    read: Callable[[], Any]
    """Returns a pyarrow.RecordBatch or Table of so many rows."""


class Batch(NamedTuple):
    """The rows of a step on this rank."""

    columns: Arrays
    rows: int
    """0: the columns have one row, which must not count."""
    factor: float
    """The rank's share of the step's rows, times the number of ranks: the mean over the ranks of factor * the rank's
    mean is the mean over all rows."""


class Order(NamedTuple):
    """The order of the rows."""

    seed: Sequence[int] | None
    """The seed of the random numbers; None: the rows stay in their order."""
    window: int = WINDOW


class Cut(NamedTuple):
    """The batches of a pass over the rows, the same on all ranks."""

    rows: Sequence[int]
    """The rows of each rank."""
    steps: int

    @classmethod
    def of(cls, rows: Sequence[int], batch_size: int, multiple: int = 1) -> Cut:
        """Cut the rows into batches of `batch_size` or fewer.

        :param rows: of each rank
        :param batch_size: rows per rank and step, at most
        :param multiple: a number of steps that must fit into a pass as a whole
        :raises InvalidArgumentError: a rank has no rows
        """
        empty = [rank for rank, count in enumerate(rows) if not count]
        if empty:
            raise InvalidArgumentError(f"rank {empty[0]} has no rows to train with: {sum(rows)} on {len(rows)} ranks")
        return cls(rows, -(-max(rows) // batch_size // multiple) * multiple)

    def batch(self, step: int) -> NDArray[np.int64]:
        """Count the rows of a step on each rank."""
        rows = np.asarray(self.rows, np.int64)
        return rows * (step + 1) // self.steps - rows * step // self.steps


def batches(
    chunks: Sequence[Chunk],
    cut: Cut,
    rank: int,
    orders: Iterable[Order],
    steps: int | None = None,
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Iterator[Batch]:
    """Yield the batches of an epoch.

    :param chunks: the rows of this rank
    :param cut: the same on all ranks
    :param rank: this rank
    :param orders: of each pass over the rows
    :param steps: stop after so many, which may be more or fewer than those of a pass; None: one pass
    :param change: called with each row
    """
    passes = (_one_pass(chunks, cut, rank, order) for order in orders)
    for batch in itertools.islice(itertools.chain.from_iterable(passes), cut.steps if steps is None else steps):
        yield batch._replace(columns=_changed(batch.columns, change)) if change else batch


def _one_pass(chunks: Sequence[Chunk], cut: Cut, rank: int, order: Order) -> Iterator[Batch]:
    windows = _windows(chunks, order)
    have: Arrays = {}
    for step in range(cut.steps):
        counts = cut.batch(step)
        mine = int(counts[rank])
        while _length(have) < max(mine, 1):
            more = next(windows, None)
            if more is None:
                break
            have = _joined(have, more)
        taken = {name: values[: max(mine, 1)] for name, values in have.items()}  # the last step has a row of each rank
        have = {name: values[mine:] for name, values in have.items()}
        yield Batch(taken, mine, mine * len(counts) / int(counts.sum()))


def _windows(chunks: Sequence[Chunk], order: Order) -> Iterator[Arrays]:
    """Yield the rows of all chunks, a window at once."""
    generator = None if order.seed is None else np.random.default_rng(order.seed)
    turn = range(len(chunks)) if generator is None else generator.permutation(len(chunks))
    held: list[Any] = []
    for piece in (piece for at in turn for piece in _pieces(chunks[at], order.window)):
        if held and sum(one.num_rows for one in held) + piece.num_rows > order.window:
            yield _window(held, generator)
            held = []
        held.append(piece)
    if held:
        yield _window(held, generator)


def _pieces(chunk: Chunk, most: int) -> Iterator[Any]:
    rows = chunk.read()
    for start in range(0, rows.num_rows, most):
        yield rows.slice(start, most)


def _window(pieces: Sequence[Any], generator: np.random.Generator | None) -> Arrays:
    names = pieces[0].schema.names
    arrays = {name: _together(name, [to_array(piece.column(name), name) for piece in pieces]) for name in names}
    if generator is None:
        return arrays
    order = generator.permutation(_length(arrays))
    return {name: values[order] for name, values in arrays.items()}


def _length(arrays: Arrays) -> int:
    return len(next(iter(arrays.values()))) if arrays else 0


def _joined(first: Arrays, second: Arrays) -> Arrays:
    if not first:
        return second
    return {name: _together(name, [values, second[name]]) for name, values in first.items()}


def _together(name: str, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Put rows of a column one behind the other.

    :raises InvalidArgumentError: their values have different shapes
    """
    try:
        return np.concatenate(arrays)
    except ValueError:
        shapes = ", ".join(dict.fromkeys(str(array.shape[1:]) for array in arrays))
        raise InvalidArgumentError(f"the arrays of column {name} have the shapes {shapes}") from None


def _changed(columns: Arrays, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Arrays:
    own = {name: values.copy() for name, values in columns.items()}  # a row that does not count comes again
    rows = [change({name: values[at] for name, values in own.items()}) for at in range(_length(own))]
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
