# SPDX-License-Identifier: Apache-2.0
"""What does agreement on a step of ResNet-50 cost, from 6 ranks to 27,648?

    python benchmarks/control_plane [--out FILE] [--largest 4608]

Every rank is a real engine in one process. Needs gcc, and 4 GiB of memory for the largest world.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import predecessor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results

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
    return json.loads(subprocess.run([program, "gradients"], check=True, capture_output=True, text=True).stdout)


def counted(nodes: int, names: list[tuple[str, int]]) -> results.Record:
    """The predecessor's counts."""
    ranks = nodes * PER_NODE
    first, tick = predecessor.first_announcement(ranks, names), predecessor.bit_vector(ranks, len(names))
    ticks = 1 / predecessor.TICK_SECONDS
    return {
        "what": "predecessor",
        "ranks": ranks,
        "first": vars(first),
        "tick": vars(tick),
        "ticks_per_second": ticks,
    }


def summary(steps: list[results.Record]) -> results.Record:
    """The steps of one kind as one record: counts of the last, times as medians."""
    return steps[-1] | {key: median(step[key] for step in steps) for key in ("cpu_us_mean", "cpu_us_max")}


def table(cases: list[results.Record]) -> str:
    """Markdown: ours, and the predecessor's tick beside it."""
    lines = ["| ranks | arrival | messages | MB | chain | busiest rank: messages | CPU us per rank, mean "
             "| KiB per rank | predecessor: messages | MB | chain | MB at rank 0 |", "|---" * 12 + "|"]  # fmt: skip
    for counts in (case for case in cases if case["what"] == "predecessor"):
        for arrival in ARRIVALS:
            ranks = counts["ranks"]
            key = ("hpccoll", ranks, arrival)
            row = summary([c for c in cases if (c["what"], c["ranks"], c.get("arrival")) == key])
            old = counts["first" if arrival == "first" else "tick"]
            ours = (
                f"{ranks:,} | {arrival} | {row['messages']:,} | {row['bytes'] / 1e6:.2f} | {row['chain']}"
                f" | {row['messages_max']} | {row['cpu_us_mean']:.0f} | {row['memory_max'] / 1024:.0f}"
            )
            theirs = f"{old['messages']:,} | {old['bytes'] / 1e6:.2f} | {old['chain']} | {old['root_bytes'] / 1e6:.1f}"
            lines.append(f"| {ours} | {theirs} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file for all rows, as JSON Lines")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: the table of such a file")
    parser.add_argument("--largest", type=int, default=NODES[-1], help="nodes of the largest world")
    parser.add_argument("--fanout", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3, help="cached steps of each way of arriving")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(results.read(arguments.table)[1]))
        return
    facts, cases = results.facts("control_plane"), []
    sizes = [nodes for nodes in NODES if nodes <= arguments.largest]
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        names = gradients(program)
        for nodes in sizes:
            rows = measure(program, nodes, PER_NODE, arguments.fanout, arguments.steps)
            cases += [{"what": "hpccoll"} | row for row in rows]
    cases += [counted(nodes, names) for nodes in sizes]
    print(table(cases))
    if arguments.out:
        results.write(arguments.out, facts, cases)


if __name__ == "__main__":
    main()
