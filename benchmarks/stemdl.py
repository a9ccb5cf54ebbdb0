# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of averaging gradients in a step of examples/stemdl, with hpccoll and with DDP over Gloo.

    python benchmarks/stemdl.py --ranks 2 4

The same program averages the same batches in three ways, in turn. The exposed communication is the additional time of
the pass that communicates, and the wait for the mean.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import results

ROOT = Path(__file__).resolve().parents[1]
PLACE = ("ranks", "nodes", "wire")
VARIANTS = ("optimizer", "ddp", "ddp-gloo")
FIGURES = ("step", "exposed")
WARM_UP = 5  # first steps of a run, left out


def run_once(case: dict[str, Any], folder: Path, more: list[str]) -> dict[str, list[float]]:
    """Train once; return the seconds of each step of rank 0."""
    ranks = case["ranks"]
    command = [sys.executable, "-m", "hpccoll", "run", "-np", ranks, "--nodes", case["nodes"]]
    command += [
        "--timeout",
        600,
        sys.executable,
        ROOT / "examples" / "stemdl" / "train.py",
        "--folder",
        folder,
    ]
    command += ["--average", case["variant"], "--wire", case["wire"], *more]
    subprocess.run(
        [str(word) for word in command],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    with h5py.File(folder / f"run-{ranks}-ranks.h5") as record:
        return {name: record[f"seconds/{name}"][WARM_UP:].tolist() for name in FIGURES}


def measure(cases: list[dict[str, Any]], rounds: int, more: list[str]) -> None:
    """Run these cases in turn; add the quartiles of their figures to each."""
    samples = [{name: list[float]() for name in FIGURES} for _ in cases]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for case, seconds in zip(cases, samples, strict=True):
                for name, values in run_once(case, Path(folder), more).items():
                    seconds[name] += values
    for case, seconds in zip(cases, samples, strict=True):
        case |= {name: results.quartiles(values) for name, values in seconds.items()}
        case["repetitions"] = len(seconds["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--wire", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=results.file, help="file for the results, as JSON Lines")
    options, more = parser.parse_known_args()
    facts, measured = results.facts("stemdl"), []
    for place in itertools.product(options.ranks, options.nodes, options.wire):
        cases = [dict(zip(PLACE, place, strict=True)) | {"variant": variant} for variant in VARIANTS]
        measure(cases, options.rounds, more)
        measured += cases
        for case in cases:
            step, exposed = (1e3 * case[name]["median"] for name in FIGURES)
            what = "{ranks} ranks, {nodes} nodes, {wire}, {variant:10}".format(**case)
            print(f"{what}: step {step:7.2f} ms, exposed communication {exposed:6.2f} ms", flush=True)
    if options.out:
        results.write(options.out, facts, measured)


if __name__ == "__main__":
    main()
