# SPDX-License-Identifier: Apache-2.0
"""What does agreement on a step of ResNet-50 cost, from 6 ranks to 27,648?

    python benchmarks/control_plane [--json FILE] [--largest 4608]

Every rank is a real engine in one process. Needs gcc, and about MEMORY GiB for the largest world.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import predecessor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PER_NODE = 6
NODES = (1, 16, 256, 4608)
ARRIVALS = ("first", "in order", "differing", "one late")


def build(folder: Path) -> Path:
    program = folder / "control_plane"
    sources = [*HERE.glob("*.c"), *(ROOT / "ext/core").glob("*.c")]
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'ext/core'}", *sources, "-o", program], check=True)
    return program


def measure(program: Path, nodes: int, per_node: int, fanout: int, steps: int) -> list[dict[str, Any]]:
    command = [program, str(nodes), str(per_node), str(fanout), str(steps)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def gradients(program: Path) -> list[tuple[str, int]]:
    """Names and numbers of dimensions of ResNet-50's gradients."""
    return json.loads(subprocess.run([program, "gradients"], check=True, capture_output=True, text=True).stdout)


def summary(rows: list[dict[str, Any]], arrival: str) -> dict[str, Any]:
    """The steps of one kind as one row: counts of the last, times as medians."""
    steps = [row for row in rows if row["arrival"] == arrival]
    times = {key: median(row[key] for row in steps) for key in ("cpu_us_mean", "cpu_us_max")}
    return {**steps[-1], **times}


def print_table(results: dict[int, list[dict[str, Any]]], names: list[tuple[str, int]]) -> None:
    print(f"{'ranks':>6} {'arrival':<10} {'messages':>9} {'MB':>8} {'chain':>5} {'busiest rank':>12} {'CPU us a rank':>18} {'KiB a rank':>10}"
          f"  | predecessor: {'messages':>9} {'MB':>8} {'chain':>5} {'rank 0':>9}")  # fmt: skip
    print(f"{'':>6} {'':<10} {'':>9} {'':>8} {'':>5} {'messages':>12} {'mean':>9} {'max':>8} {'max':>10}  | (a tick)")
    for rows in results.values():
        for arrival in ARRIVALS:
            row = summary(rows, arrival)
            ranks = row["ranks"]
            old = predecessor.first_meeting(ranks, names) if arrival == "first" else predecessor.bit_vector(ranks, 161)
            print(f"{ranks:>6} {arrival:<10} {row['messages']:>9,} {row['bytes'] / 1e6:>8.2f} {row['chain']:>5} {row['messages_max']:>12}"
                  f" {row['cpu_us_mean']:>9.1f} {row['cpu_us_max']:>8.1f} {row['memory_max'] / 1024:>10.1f}"
                  f"  | {'':>12} {old.messages:>9,} {old.bytes / 1e6:>8.2f} {old.chain:>5} {old.root_bytes / 1e6:>6.1f} MB")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--largest", type=int, default=NODES[-1], help="nodes of the largest world")
    parser.add_argument("--fanout", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3, help="cached steps of each way of arriving")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        names = gradients(program)
        results = {n: measure(program, n, PER_NODE, arguments.fanout, arguments.steps) for n in NODES if n <= arguments.largest}
    print_table(results, names)
    if arguments.json:
        rows = [row for rows in results.values() for row in rows]
        old = [
            {"ranks": n * PER_NODE, "first": vars(predecessor.first_meeting(n * PER_NODE, names)),
             "tick": vars(predecessor.bit_vector(n * PER_NODE, 161)), "ticks_per_second": 1 / predecessor.TICK_SECONDS}
            for n in results
        ]  # fmt: skip
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"hpccoll": rows, "predecessor": old}, indent=1) + "\n")


if __name__ == "__main__":
    main()
