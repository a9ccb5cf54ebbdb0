# SPDX-License-Identifier: Apache-2.0
"""The engine under load: many random programs, many hostile messages; prints what was run.

    python tests/core/soak.py --programs 100000 --fuzz 10000000 --jobs 2

Programs run twice: most of them plainly, a tenth under the address and undefined-behaviour sanitizers.
Needs gcc, and for the fuzzer clang with its run-time library (libclang-rt).
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from programs import ROOT, SANITIZE, fuzzer, seeds, simulator

# What a share of the programs is forced to; the rest is left to chance.
MODES = ["", "", "--capacity 1 --sequenced 1 --stop 0 --ranks 1-6", "--capacity 2 --sequenced 1 --stop 0 --ranks 1-6"]


def output(command: list[str | Path]) -> str:
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def programs(count: int, jobs: int, seed: int) -> None:
    plain, sanitized = simulator(), simulator(*SANITIZE)
    share = max(1, count // (len(MODES) * 10))
    runs: list[list[str | Path]] = []
    for i in range(len(MODES) * 10):
        program = sanitized if i % 10 == 9 else plain
        runs.append([program, "--programs", str(share), "--seed", str(seed + i * share), *MODES[i // 10].split()])
    start = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        totals: dict[str, int] = {}
        for text in pool.map(output, runs):
            for number, what in re.findall(r"(\d+) ([a-z][a-z ]*)", text.split("(")[0]):
                totals[what.strip()] = totals.get(what.strip(), 0) + int(number)
    print(f"{time.monotonic() - start:.0f} s:", ", ".join(f"{number:,} {what}" for what, number in totals.items()), flush=True)


def fuzz(count: int, jobs: int, seed: int) -> None:
    program, write_seeds = fuzzer(), seeds()
    with tempfile.TemporaryDirectory() as folder:
        print("fuzzer's seeds:", output([write_seeds, folder]).strip(), flush=True)
        runs: list[list[str | Path]] = [
            [program, f"-runs={count // jobs}", f"-seed={seed + i}", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={folder}/", folder]
            for i in range(jobs)
        ]
        start = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            texts = list(pool.map(output, runs))
        inputs = sum(int(number) for text in texts for number in re.findall(r"number_of_executed_units:\s*(\d+)", text))
        messages, refused = (
            sum(int(number) for text in texts for number in re.findall(pattern, text))
            for pattern in (r"(\d+) messages decoded", r"(\d+) of them refused")
        )
        print(f"{time.monotonic() - start:.0f} s: {inputs:,} inputs to the wire decoder with {messages:,} messages, {refused:,} refused, no fault")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--fuzz", type=int, default=10_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.programs:
        programs(arguments.programs, arguments.jobs, arguments.seed)
    if arguments.fuzz:
        fuzz(arguments.fuzz, arguments.jobs, arguments.seed)


if __name__ == "__main__":
    main()
