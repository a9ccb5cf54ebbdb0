# SPDX-License-Identifier: Apache-2.0
"""The job of an estimator on a rank: what it trains with, its batches, and its checkpoints."""

import contextlib
import itertools
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.default_world import current
from hpccoll.errors import InvalidArgumentError
from hpccoll.spark.common.store import Store
from hpccoll.spark.estimators.rows import WINDOW, Arrays, Batch, Chunk, Cut, Order, batches
from hpccoll.spark.spool import TRAINING, VALIDATION, here

__all__ = ["Feed", "Job", "LocalRows", "Source", "floats", "inputs_of", "labels_of", "shaped"]

EXACT = 1 << 24
"""The largest integer up to which float32 has all integers."""


@dataclass(frozen=True)
class Job:
    """The parameters of an estimator for the ranks; see hpccoll.spark.estimators.parameters."""

    features: Sequence[str]
    labels: Sequence[str]
    weight: str
    values: dict[str, Any] = field(repr=False)
    """The parameters by name."""
    seed: int
    run_id: str
    checkpoint: bytes | None = field(default=None, repr=False)
    """What an earlier run of this name has left; None: there was none."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def resumed(self) -> dict[str, Any]:
        """Return the state that `save` has saved last; empty if there is none.

        :raises InvalidArgumentError: the file has none, as it is torn, or another program's
        """
        if self.checkpoint is None:
            return {}
        try:
            state: dict[str, Any] = {**pickle.loads(self.checkpoint)}
        except Exception as error:  # noqa: BLE001 - bytes that are no pickle raise whatever they like
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InvalidArgumentError(
                f"{self['store'].get_checkpoint_path(self.run_id)} holds no state of run {self.run_id} "
                f"({len(self.checkpoint)} bytes; {why}): bring back a copy of it, or remove "
                "it, and the run begins anew"
            ) from None
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Save the state after an epoch, if there is a store that saves runs; rank 0 calls this."""
        store: Store | None = self["store"]
        if store is not None and store.saving_runs():
            store.write(store.get_checkpoint_path(self.run_id), pickle.dumps(state))


class Source(Protocol):
    """Where the rows of a rank are."""

    def chunks(self, rank: int, size: int) -> tuple[list[Chunk], list[Chunk]]:
        """Return the rank's rows for training, and those for validation."""


class LocalRows:
    """The rows that the rank's task has written; see hpccoll.spark.spool."""

    def chunks(self, _rank: int, _size: int) -> tuple[list[Chunk], list[Chunk]]:
        """See Source."""
        training, validation = (
            [Chunk(rows.sizes()[at], lambda rows=rows, at=at: rows[at]) for at in range(len(rows))]  # type: ignore[misc]
            for rows in (here(TRAINING), here(VALIDATION))
        )
        return training, validation


class Feed:
    """The batches of this rank; all ranks make one together."""

    def __init__(self, job: Job, source: Source) -> None:
        """Count the rows of all ranks.

        :raises InvalidArgumentError: a rank has no rows to train with
        """
        self._job, world = job, current()
        self.rank, self.size = world.rank, world.size
        self._training, self._validation = source.chunks(world.rank, world.size)
        mine = tuple(sum(chunk.rows for chunk in own) for own in (self._training, self._validation))
        counts = world.allgather_object(mine)
        self._cut = Cut.of([rows for rows, _ in counts], job["batch_size"], job["backward_passes_per_step"])
        self.steps: int = job["train_steps_per_epoch"] or self._cut.steps
        """The steps of an epoch."""
        self.even = len({rows for rows, _ in counts}) == 1
        """Whether all ranks have as many rows as each other: then all factors are 1."""
        self._held = [rows for _, rows in counts]
        self.validates = any(self._held)
        """Whether any rank has rows for validation."""

    def training(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, `steps` of them."""
        job, buffer = self._job, self._job["shuffle_buffer_size"]
        shuffled = job["shuffle"] and buffer != 0
        seeds = ([job.seed, self.rank, epoch, turn] if shuffled else None for turn in itertools.count())
        orders = (Order(seed, buffer or WINDOW) for seed in seeds)
        return batches(self._training, self._cut, self.rank, orders, self.steps, job["transformation_fn"])

    def validation(self) -> Iterator[Batch]:
        """Yield this rank's batches for validation, which are as many as its rows need."""
        cut = self._validated()
        if cut is None:
            return iter(())
        change = self._job["transformation_fn"]
        return batches(self._validation, cut, 0, [Order(None)], self.validation_steps(), change)

    def check_validation(self) -> None:
        """Check that each rank has rows for validation.

        :raises InvalidArgumentError: a rank has none
        """
        if 0 in self._held:
            rank, rows = self._held.index(0), sum(self._held)
            raise InvalidArgumentError(f"rank {rank} has no rows to validate with: {rows} on {self.size} ranks")

    def validation_steps(self) -> int:
        """Count the batches of this rank for validation."""
        cut, most = self._validated(), self._job["validation_steps_per_epoch"]
        steps = cut.steps if cut else 0
        return steps if most is None else min(most, steps)

    def common_validation_steps(self) -> int:
        """Count the batches for validation of each rank where all ranks make as many, each with rows of its own."""
        most, steps = self._job["validation_steps_per_epoch"], self._common_cut().steps
        return steps if most is None else min(most, steps)

    def common_validation(self) -> Iterator[Batch]:
        """Yield this rank's batches for validation, which are as many as those of the others; see check_validation."""
        cut, count = self._common_cut(), self.common_validation_steps()
        return batches(self._validation, cut, self.rank, [Order(None)], count, self._job["transformation_fn"])

    def _common_cut(self) -> Cut:
        cut = Cut.of(self._held, self._job["val_batch_size"] or self._job["batch_size"])
        return Cut(self._held, min(cut.steps, *self._held))

    def _validated(self) -> Cut | None:
        rows = sum(chunk.rows for chunk in self._validation)
        return Cut.of([rows], self._job["val_batch_size"] or self._job["batch_size"]) if rows else None


def inputs_of(
    columns: Arrays,
    features: Sequence[str],
    inputs: int,
    shapes: Sequence[Sequence[int]] | None,
    convert: Callable[[NDArray[Any], str], NDArray[Any]],
) -> list[NDArray[Any]]:
    """Make the inputs of a model of the columns of features.

    A model with as many inputs as columns gets one each, as with Horovod. A model with one input gets the columns side
    by side, in the order of `features`, each with as many numbers per row as it has.

    :param inputs: how many inputs the model has
    :param shapes: of the inputs, with -1 for the rows; None: as the columns are
    :param convert: makes a column, of this name, of the input's type
    :raises InvalidArgumentError: there are other numbers of columns and inputs
    """
    parts = [convert(columns[name], name) for name in features]
    if inputs == 1 and (len(parts) > 1 or parts[0].ndim == 1):
        parts = [np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)]
    if len(parts) != inputs:
        raise InvalidArgumentError(f"the model has {inputs} inputs, and there are {len(parts)} columns of features")
    return shaped(parts, shapes, features)


def labels_of(
    columns: Arrays,
    labels: Sequence[str],
    shapes: Sequence[Sequence[int]] | None,
    convert: Callable[[NDArray[Any], str], NDArray[Any]],
) -> list[NDArray[Any]]:
    """Make the labels, one array per column; see inputs_of."""
    return shaped([convert(columns[name], name) for name in labels], shapes, labels)


def shaped(
    parts: list[NDArray[Any]], shapes: Sequence[Sequence[int]] | None, names: Sequence[str]
) -> list[NDArray[Any]]:
    """Give arrays the shapes: of all rows, with -1 for their number, or of one row, as [2]; None: those that they have.

    :param names: of the columns, for errors
    :raises InvalidArgumentError: a row would not keep its numbers
    """
    if not shapes:
        return parts
    columns = f"column{'s' * (len(names) != 1)} {', '.join(names)}"
    if len(shapes) != len(parts):
        raise InvalidArgumentError(f"there are {len(shapes)} shapes for {len(parts)} arrays, of {columns}")
    of = [f"column {name}" for name in names] if len(names) == len(parts) else [columns]
    return [_shaped(part, list(shape), name) for part, shape, name in zip(parts, shapes, of, strict=True)]


def _shaped(values: NDArray[Any], shape: list[int], name: str) -> NDArray[Any]:
    rows, each = len(values), int(np.prod(values.shape[1:]))
    if math.prod(shape) == each:
        return values.reshape(rows, *shape)
    with contextlib.suppress(ValueError):
        made = values.reshape(shape)
        if len(made) == rows:
            return made
    raise InvalidArgumentError(f"{name} has {each} numbers per row, which do not fit the shape {shape}")


def floats(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Convert a column to float32.

    :raises InvalidArgumentError: an integer would become another one
    """
    if values.dtype.kind in "iu" and values.size and max(-int(values.min()), int(values.max())) > EXACT:
        worst = max((int(values.min()), int(values.max())), key=abs)
        raise InvalidArgumentError(f"column {name} has {worst}, which float32 has not: divide the number, or split it")
    return values.astype(np.float32)
