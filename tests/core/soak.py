# SPDX-License-Identifier: Apache-2.0
"""Runs the engine under load: many random programs, many hostile messages; prints their numbers.

    python tests/core/soak.py --programs 100000 --fuzz 10000000

A tenth of the programs runs under the address and undefined-behaviour sanitizers, the fuzzer always does.
Needs gcc, and for the fuzzer clang with its run-time library (Debian: clang libclang-rt-14-dev).
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from programs import ROOT, SANITIZE, Build, fuzzer, seeds, simulator

ROUND = 200_000  # inputs of one call of the fuzzer

# Options of a quarter of the programs each; the other options are random.
SMALL = "--ranks 1-6 --stop 0"
MODES = ("", "", f"--capacity 1 {SMALL}", f"--capacity 2 {SMALL}")


def compiler() -> Build:
    """compile_c of the tests' conftest.py: pytest compiles the same programs only once."""
    spec = spec_from_file_location("conftest_of_the_tests", ROOT / "tests/conftest.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    build: Build = module.compile_c
    return build


def output(command: list[str | Path]) -> str:
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def programs(build: Build, count: int, jobs: int, seed: int) -> None:
    """Run `count` random programs in shares, every tenth share with sanitizers."""
    plain, sanitized = simulator(build), simulator(build, *SANITIZE)
    shares = 10 * len(MODES)
    share = -(-count // shares)
    runs: list[list[str | Path]] = []
    for i in range(shares):
        program = sanitized if i % 10 == 9 else plain
        first = str(seed + i * share)
        runs.append([program, "--programs", str(share), "--seed", first, *MODES[i // 10].split()])
    start = time.monotonic()
    totals: dict[str, int] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for text in pool.map(output, runs):
            for number, what in re.findall(r"(\d+) ([a-z][a-z ]*)", text.split("(")[0]):
                totals[what.strip()] = totals.get(what.strip(), 0) + int(number)
    counts = ", ".join(f"{number:,} {what}" for what, number in totals.items())
    print(f"{time.monotonic() - start:.0f} s: {counts}; all as on an ideal machine", flush=True)


def fuzz(build: Build, count: int, jobs: int, seed: int) -> None:
    """Run rounds of libFuzzer over one growing corpus until `count` messages have been decoded."""
    program, write_seeds = fuzzer(build), seeds(build)
    start, inputs, messages, refused = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory() as corpus, ThreadPoolExecutor(jobs) as pool:
        print("fuzzer's seeds:", output([write_seeds, corpus]).strip(), flush=True)
        flags = [f"-runs={ROUND}", "-max_len=4096", f"-artifact_prefix={ROOT}/build/", corpus]
        while messages < count:
            runs = [[program, f"-seed={seed + inputs + i}", *flags] for i in range(jobs)]
            for text in pool.map(output, runs):
                found = re.search(r"fuzz_wire: (\d+) messages decoded, (\d+) of them refused", text)
                assert found, text
                inputs, messages, refused = inputs + ROUND, messages + int(found[1]), refused + int(found[2])
            print(f"{time.monotonic() - start:.0f} s: {messages:,} messages in {inputs:,} inputs", flush=True)
    print(f"{messages:,} inputs to the wire decoder, {refused:,} of them refused, no fault", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--fuzz", type=int, default=10_000_000, help="messages to the wire decoder")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1_000_000)
    arguments = parser.parse_args()
    build = compiler()
    if arguments.programs:
        programs(build, arguments.programs, arguments.jobs, arguments.seed)
    if arguments.fuzz:
        fuzz(build, arguments.fuzz, arguments.jobs, arguments.seed)


if __name__ == "__main__":
    main()
