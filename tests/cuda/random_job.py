# SPDX-License-Identifier: Apache-2.0
"""A job of random programs (tests/api/random_jobs.py) whose arrays are mostly in the fake driver's memory."""

import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

import doubles
import numpy as np
import random_jobs

import hpccoll

KEPT = (
    "raise_window",
    "fusion_threshold",
    "cache_capacity",
    "chunk_bytes",
    "rails",
    "algorithm",
    "background",
)
"""Knobs that matter here."""
LEAST_CHUNK = 16 << 10
"""Bytes. A chunk of 64 elements, of which large arrays would have thousands, costs a busy machine 10 ms of sleep."""


def values_of(array):
    return array if array is None or isinstance(array, np.ndarray) else doubles.values_of(array, doubles.current.stream)


def main(first, seconds):
    doubles.use_device(0)
    doubles.install_cupy()
    device, began = random_jobs.Where(put=doubles.to_cupy, get=values_of), time.monotonic()
    for seed in itertools.count(first):
        doubles.current.stream = doubles.Stream()
        chosen = random_jobs.knobs(seed)
        chosen["chunk_bytes"] = max(chosen["chunk_bytes"], LEAST_CHUNK) if chosen["chunk_bytes"] else 0
        with hpccoll.World(check=False, **{name: chosen[name] for name in KEPT}) as world:
            random_jobs.run(world, seed, 5, device)
            if max(world.allgather_object(time.monotonic() - began)) > seconds:
                break
    if world.rank == 0:
        print(f"{seed - first + 1} programs")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
