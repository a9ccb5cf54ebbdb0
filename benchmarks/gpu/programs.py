# SPDX-License-Identifier: Apache-2.0
"""Random programs (tests/api/random_jobs.py) whose arrays are mostly in device memory: those of CuPy.

hpccoll run -np 3 --nodes 2 python benchmarks/gpu/programs.py SECONDS
"""

import functools
import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

import hpccoll

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "api"))

import random_jobs

KEPT = ("raise_window", "fusion_threshold", "cache_capacity", "chunk_bytes", "rails", "algorithm", "background")
"""Knobs that matter here."""
LEAST_CHUNK = 16 << 10
"""Bytes. A chunk of 64 elements, of which large arrays would have thousands, costs a busy machine 10 ms of sleep."""


def run_programs(
    device: random_jobs.Where, stream: Callable[[], AbstractContextManager[Any]], seconds: float, first: int = 0
) -> None:
    """Run programs, each in a stream of its own, until the time is over.

    :param first: the seed of the first program
    """
    began = time.monotonic()
    for seed in itertools.count(first):
        chosen = random_jobs.knobs(seed)
        chosen["chunk_bytes"] = max(chosen["chunk_bytes"], LEAST_CHUNK) if chosen["chunk_bytes"] else 0
        with stream(), hpccoll.World(check=False, **{name: chosen[name] for name in KEPT}) as world:
            random_jobs.run(world, seed, 5, device)
            if max(world.allgather_object(time.monotonic() - began)) > seconds:
                break
    if world.rank == 0:
        print(json.dumps({"what": "random programs", "count": seed - first + 1}))


def main(seconds: float) -> None:
    cupy = importlib.import_module("cupy")

    def get(x: Any) -> Any:
        return x if x is None or isinstance(x, np.ndarray) else cupy.asnumpy(x)

    device = random_jobs.Where(put=cupy.asarray, get=get)
    run_programs(device, functools.partial(cupy.cuda.Stream, non_blocking=True), seconds)


if __name__ == "__main__":
    main(float(sys.argv[1]))
