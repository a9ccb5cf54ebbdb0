# SPDX-License-Identifier: Apache-2.0
"""One rank of benchmarks/gpu/arrays.py, with arrays over the fake driver instead of a framework's."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import doubles
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))
import arrays


class Array(doubles.CupyArray):
    """A double with the arithmetic of the program; the result is a new array if it is not in place."""

    def _became(self, values: Any) -> Self:
        doubles.write(self.data.ptr, np.asarray(values, self.dtype), doubles.current.stream)
        return self

    def _values(self) -> np.ndarray:
        return doubles.values_of(self, doubles.current.stream)

    def __iadd__(self, number: float) -> Self:
        return self._became(self._values() + number)

    def __isub__(self, number: float) -> Self:
        return self._became(self._values() - number)

    def __mul__(self, number: float) -> "Array":
        return Array(self.shape, self.dtype)._became(self._values() * number)


class Double:
    """The parts of a framework that arrays.py uses."""

    def __init__(self) -> None:
        doubles.use_device(0)
        doubles.current.stream = doubles.Stream()
        doubles.install_cupy()
        sys.modules["cupy"].ndarray = sys.modules["cupy"].empty = Array
        self.dtypes = [name for name in arrays._core.DTYPES if name != "bfloat16"]

    def put(self, x: np.ndarray) -> Array:
        return Array(x.shape, x.dtype)._became(x)

    def get(self, x: Array) -> np.ndarray:
        return x._values()

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        before, doubles.current.stream = doubles.current.stream, doubles.Stream()
        try:
            yield
        finally:
            doubles.current.stream = before

    def busy(self) -> None: ...

    def is_own(self, x: Any) -> bool:
        return isinstance(x, Array)


arrays.LIBRARIES["double"] = Double
arrays.one_rank("double")
