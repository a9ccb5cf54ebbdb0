# SPDX-License-Identifier: Apache-2.0
"""The table of a scaling study, and its curve, from what scaling.py wrote in a folder.

    python benchmarks/scaling_report.py scaling/ --plot scaling.svg

Runs of the same size are put together. The efficiency is the share of a step that is computing; "of the smallest" is
what a step took on the fewest nodes, as a share of what it takes here (weak scaling).
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, order=True)
class Curve:
    """What was summed, by which library, how."""

    label: str
    library: str
    variant: str


@dataclass(frozen=True)
class Point:
    nodes: int
    ranks: int
    runs: int
    quartiles: tuple[float, float, float]
    """Seconds of a step."""
    compute: float


Curves = dict[Curve, list[Point]]


def read(folder: Path) -> Curves:
    """All runs in the folder; each curve from few nodes to many."""
    runs = defaultdict(list)
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            result = json.loads(line)
            figures = result["figures"]
            curve = Curve(result["label"], f"{result['library']} {result['version']}", result["variant"])
            runs[curve, int(figures["nodes"]), result["ranks"], figures["compute"]].append(result["samples"])
    curves: Curves = defaultdict(list)
    for (curve, nodes, ranks, compute), samples in sorted(runs.items()):
        low, middle, high = map(float, np.quantile(np.concatenate(samples), (0.25, 0.5, 0.75)))
        curves[curve].append(Point(nodes, ranks, len(samples), (low, middle, high), compute))
    return dict(curves)


def table(curves: Curves) -> str:
    """Markdown, a line per point."""
    lines = [
        "| library | variant | nodes | ranks | runs | step ms | quartiles | exposed ms | efficiency "
        "| of the smallest |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    for curve, points in curves.items():
        for point in points:
            low, step, high = point.quartiles
            lines.append(
                f"| {curve.library} | {curve.variant} | {point.nodes} | {point.ranks} | {point.runs} "
                f"| {step * 1e3:.1f} | {low * 1e3:.1f} .. {high * 1e3:.1f} | {(step - point.compute) * 1e3:.1f} "
                f"| {point.compute / step:.3f} | {points[0].quartiles[1] / step:.3f} |"
            )
    return "\n".join(lines)


def plot(curves: Curves, file: Path) -> None:
    """Efficiency over nodes, with the quartiles; the format is the file's ending."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        sys.exit("--plot: matplotlib is not installed: python -m pip install matplotlib")

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="nodes", ylabel="computing, share of the step", ylim=(0, 1.05))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    for curve, points in curves.items():
        nodes = [point.nodes for point in points]
        low, middle, high = np.array([point.compute / np.array(point.quartiles) for point in points]).T
        axes.errorbar(
            nodes,
            middle,
            (middle - high, low - middle),
            marker="o",
            label=f"{curve.library}, {curve.variant}",
        )
    axes.set_title("; ".join(sorted({curve.label for curve in curves})))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="scaling.py's --out")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the curve as .svg, .pdf or .png; needs matplotlib")
    options = parser.parse_args()
    curves = read(options.folder)
    if not curves:
        sys.exit(f"{options.folder}: no results (*.jsonl) of scaling.py")
    print(table(curves))
    if options.plot:
        plot(curves, options.plot)


if __name__ == "__main__":
    main()
