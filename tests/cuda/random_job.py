# SPDX-License-Identifier: Apache-2.0
"""A job of random programs (benchmarks/gpu/programs.py) whose arrays are mostly in the fake driver's memory."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))

import doubles
import numpy as np
import programs


def values_of(array):
    return array if array is None or isinstance(array, np.ndarray) else doubles.values_of(array, doubles.current.stream)


@contextlib.contextmanager
def new_stream() -> Iterator[None]:
    doubles.current.stream = doubles.Stream()
    yield


if __name__ == "__main__":
    doubles.use_device(0)
    doubles.install_cupy()
    device = programs.random_jobs.Where(put=doubles.to_cupy, get=values_of)
    programs.run_programs(device, new_stream, float(sys.argv[2]), int(sys.argv[1]))
