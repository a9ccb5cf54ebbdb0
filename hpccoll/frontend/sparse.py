# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients: the entries of all ranks, one after another.

One allgather sends the indices and the values of an entry side by side as bytes: one request to agree on, and one error
for all ranks if their gradients differ.
"""

import dataclasses
import math

import numpy as np

__all__ = ["SparseLayout"]


@dataclasses.dataclass(frozen=True, slots=True)
class SparseLayout:
    """The layout of an entry of a sparse gradient."""

    dimensions: int
    """The number of sparse dimensions; they are the first ones."""
    row: tuple[int, ...]
    """Shape of one value: the dimensions that are dense."""
    dtype: np.dtype
    """What the values travel as: NumPy lacks some dtypes."""
    name: str
    """The dtype of the values in the framework."""

    @property
    def type_name(self) -> str:
        """The type of a row of bytes, which must be equal on all ranks."""
        return f"sparse {self.name}{list(self.row)} by {self.dimensions}"

    def pack(self, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the entries as bytes: one row per entry.

        :param indices: int64, of shape (n, dimensions)
        :param values: of `dtype`, of shape (n, *row)
        """
        n = len(values)
        left = np.ascontiguousarray(indices).reshape(n, self.dimensions).view(np.uint8)
        right = np.ascontiguousarray(values).reshape(n, math.prod(self.row)).view(np.uint8)
        return np.concatenate([left, right], axis=1)

    def unpack(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices and values that were packed."""
        cut = 8 * self.dimensions
        indices = rows[:, :cut].copy().view(np.int64).reshape(len(rows), self.dimensions)
        values = rows[:, cut:].copy().view(self.dtype).reshape(len(rows), *self.row)
        return indices, values

    def nothing(self) -> np.ndarray:
        """Return the bytes of no entries."""
        return np.empty((0, 8 * self.dimensions + math.prod(self.row) * self.dtype.itemsize), np.uint8)
