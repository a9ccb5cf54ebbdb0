# SPDX-License-Identifier: Apache-2.0
"""What does agreement on a step of ResNet-50 cost, from 6 ranks to 27,648?

    python benchmarks/control_plane [--json FILE] [--largest 4608]

Every rank is a real engine in one process. Needs gcc, and 4 GiB of memory for the largest world.
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
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'ext'}"]
    subprocess.run(["gcc", *flags, *sources, "-o", program], check=True)
    return program


def measure(program: Path, nodes: int, per_node: int, fanout: int, steps: int) -> list[dict[str, Any]]:
    command = [program, str(nodes), str(per_node), str(fanout), str(steps)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def gradients(program: Path) -> list[tuple[str, int]]:
    """Names and numbers of dimensions of ResNet-50's gradients."""
    return json.loads(
        subprocess.run([program, "gradients"], check=True, capture_output=True, text=True).stdout
    )


def summary(rows: list[dict[str, Any]], arrival: str) -> dict[str, Any]:
    """The steps of one kind as one row: counts of the last, times as medians."""
    steps = [row for row in rows if row["arrival"] == arrival]
    times = {key: median(row[key] for row in steps) for key in ("cpu_us_mean", "cpu_us_max")}
    return {**steps[-1], **times}


def print_table(results: dict[int, list[dict[str, Any]]], names: list[tuple[str, int]]) -> None:
    """Markdown: ours, and the predecessor's tick beside it."""
    print("| ranks | arrival | messages | MB | chain | busiest rank: messages | CPU us a rank, mean | KiB a rank |"
          " predecessor: messages | MB | chain | MB at rank 0 |")  # fmt: skip
    print("|---" * 12 + "|")
    for rows in results.values():
        for arrival in ARRIVALS:
            row = summary(rows, arrival)
            ranks = row["ranks"]
            first = arrival == "first"
            old = (
                predecessor.first_meeting(ranks, names)
                if first
                else predecessor.bit_vector(ranks, len(names))
            )
            ours = (
                f"{ranks:,} | {arrival} | {row['messages']:,} | {row['bytes'] / 1e6:.2f} | {row['chain']}"
                f" | {row['messages_max']} | {row['cpu_us_mean']:.0f} | {row['memory_max'] / 1024:.0f}"
            )
            theirs = f"{old.messages:,} | {old.bytes / 1e6:.2f} | {old.chain} | {old.root_bytes / 1e6:.1f}"
            print(f"| {ours} | {theirs} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--largest", type=int, default=NODES[-1], help="nodes of the largest world")
    parser.add_argument("--fanout", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3, help="cached steps of each way of arriving")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        names = gradients(program)
        results = {
            n: measure(program, n, PER_NODE, arguments.fanout, arguments.steps)
            for n in NODES
            if n <= arguments.largest
        }
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
