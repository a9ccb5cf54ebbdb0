# SPDX-License-Identifier: Apache-2.0
"""A step of the training in examples/stemdl: what averaging the gradients costs it, by hpccoll and by Gloo's DDP.

    python benchmarks/stemdl.py --ranks 2 4

The same program, the same batches, three ways to average, in turn. Exposed communication is what the pass that
communicates takes longer than those that do not, and the wait for the mean.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("optimizer", "ddp", "ddp-gloo")
FIGURES = ("step", "exposed")
WARM_UP = 5  # first steps of a run, left out


def run_once(
    way: str, ranks: int, nodes: int, wire: str, folder: Path, more: list[str]
) -> dict[str, list[float]]:
    """Train once; seconds a step of rank 0."""
    command = [sys.executable, "-m", "hpccoll", "run", "-np", ranks, "--nodes", nodes, "--timeout", 600]
    command += [sys.executable, ROOT / "examples" / "stemdl" / "train.py", "--folder", folder]
    command += ["--average", way, "--wire", wire, *more]
    subprocess.run(
        [str(word) for word in command],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    with h5py.File(folder / f"run-{ranks}-ranks.h5") as record:
        return {name: record[f"seconds/{name}"][WARM_UP:].tolist() for name in FIGURES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--wire", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all samples here")
    options, more = parser.parse_known_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks in options.ranks:
            for nodes in options.nodes:
                for wire in options.wire:
                    samples = {way: {name: list[float]() for name in FIGURES} for way in WAYS}
                    for _ in range(options.rounds):
                        for way in WAYS:
                            for name, values in run_once(way, ranks, nodes, wire, Path(folder), more).items():
                                samples[way][name] += values
                    for way in WAYS:
                        step, exposed = (1e3 * statistics.median(samples[way][name]) for name in FIGURES)
                        print(f"{ranks} ranks, {nodes} nodes, {wire}, {way:10}: step {step:7.2f} ms, "
                              f"exposed communication {exposed:6.2f} ms", flush=True)  # fmt: skip
                        rows.append(
                            {
                                "ranks": ranks,
                                "nodes": nodes,
                                "wire": wire,
                                "way": way,
                                "seconds": samples[way],
                            }
                        )
    if options.json:
        about = {"command": " ".join(sys.argv), "date": time.strftime("%Y-%m-%d %H:%M:%S")}
        options.json.write_text(json.dumps(about | {"results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
