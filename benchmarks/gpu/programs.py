# SPDX-License-Identifier: Apache-2.0
"""Random programs (tests/api/random_jobs.py) whose arrays are mostly CuPy's.

hpccoll run -np 3 --nodes 2 python benchmarks/gpu/programs.py SECONDS
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import hpccoll

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "api"))

import random_jobs

KEPT = ("raise_window", "fusion_threshold", "cache_capacity", "chunk_bytes", "rails", "algorithm", "background")
"""Knobs that matter here."""
LEAST_CHUNK = 16 << 10
"""Bytes: a chunk of 64 would be thousands of copies of some bytes each."""


def to_host(x: Any) -> Any:
    return x if x is None or isinstance(x, np.ndarray) else cupy.asnumpy(x)


def main(seconds: float) -> None:
    device, began, programs = random_jobs.Where(put=cupy.asarray, get=to_host), time.monotonic(), 0
    for seed in itertools.count():
        chosen = random_jobs.knobs(seed)
        chosen["chunk_bytes"] = max(chosen["chunk_bytes"], LEAST_CHUNK) if chosen["chunk_bytes"] else 0
        kept = {name: chosen[name] for name in KEPT}
        with cupy.cuda.Stream(non_blocking=True), hpccoll.World(check=False, **kept) as world:
            random_jobs.run(world, seed, 5, device)
            programs += 1
            if max(world.allgather_object(time.monotonic() - began)) > seconds:
                break
    if world.rank == 0:
        print(f'{{"what": "random programs", "count": {programs}}}')


if __name__ == "__main__":
    main(float(sys.argv[1]))
