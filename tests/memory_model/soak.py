# SPDX-License-Identifier: Apache-2.0
"""Explores the memory model for long: random executions without bounds, and all within wider bounds.

    python tests/memory_model/soak.py --seconds 3600

A call that has begun is ended, so it may take a minute more.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path

from explored import SCENARIOS, explorer

ROOT = Path(__file__).resolve().parents[2]
RANDOM = 10_000  # executions of one call
BOUNDS = ((2, 2), (3, 1), (3, 2), (2, 3), (3, 3))  # preemptions, old values
MOST = 200_000  # executions within each of these


def compiler() -> Callable[..., Path]:
    """compile_c of the tests' conftest.py: pytest compiles the same program only once."""
    spec = spec_from_file_location("conftest_of_the_tests", ROOT / "tests/conftest.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    build: Callable[..., Path] = module.compile_c
    return build


def run(command: list[str]) -> int:
    """Return the number of executions; end where one is wrong."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return int(done.stdout.split()[1])


def calls(seed: int) -> Iterator[list[str]]:
    """Random executions of each scenario without end, and between them those within each of the bounds."""
    bounds = iter([["all", name, *map(str, bound), str(MOST)] for bound in BOUNDS for name in SCENARIOS])
    for turn in count(seed):
        for name in SCENARIOS:
            yield ["random", name, str(turn), str(RANDOM)]
            if within := next(bounds, None):
                yield within


def soak(program: Path, seconds: float, jobs: int, seed: int) -> None:
    end, turn, next_call = time.monotonic() + seconds, threading.Lock(), calls(seed)

    def work(_: int) -> int:
        executions = 0
        while time.monotonic() < end:
            with turn:
                call = next(next_call)
            executions += run([str(program), *call])
        return executions

    with ThreadPoolExecutor(jobs) as pool:
        executions = sum(pool.map(work, range(jobs)))
    print(f"{executions:,} executions of {len(SCENARIOS)} scenarios, none is wrong", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    soak(explorer(compiler()), arguments.seconds, arguments.jobs, arguments.seed)


if __name__ == "__main__":
    main()
