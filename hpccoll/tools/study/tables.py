# SPDX-License-Identifier: Apache-2.0
"""The tables of a report: rows for the page, and the same as LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpccoll.text import byte_size
from hpccoll.tools.bench.statistics import Median
from hpccoll.tools.study.curves import Curve, Sizes

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "\\": "\\textbackslash{}",
}


@dataclass(frozen=True)
class Table:
    """A heading, columns and rows of text."""

    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def steps(curves: Sequence[Curve]) -> Table:
    """One kind of scaling: a row per contestant and number of nodes."""
    items = any(point.items for curve in curves for point in curve.points)
    columns = (
        "",
        "nodes",
        "ranks",
        "step (ms)",
        "95 % interval",
        "speed-up",
        "efficiency",
        "95 % interval",
        "samples (launches)",
    )
    rows = []
    for curve in curves:
        for point in curve.points:
            row = [
                curve.contestant, str(point.nodes), str(point.ranks), number(1e3 * point.seconds.middle),
                interval(point.seconds, 1e3), f"{point.speedup.middle:.3g}", f"{point.efficiency.middle:.3f}",
                interval(point.efficiency), f"{point.samples} ({point.launches})",
            ]  # fmt: skip
            rows.append((*row, number(point.items)) if items else tuple(row))
    return Table(curves[0].what, (*columns, "items/s") if items else columns, rows)


def interval(value: Median, factor: float = 1.0) -> str:
    """The bounds as text; "" where there is nothing between them."""
    return f"{number(factor * value.low)} to {number(factor * value.high)}" if value.low < value.high else ""


def number(value: float) -> str:
    """Four digits, or all in front of the point: no powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def sizes(several: Sequence[Sizes]) -> Table:
    """One collective: a row per size, with each contestant's time, and the ratio to the first."""
    first = several[0]
    columns = ["size", *(f"{one.contestant} (µs)" for one in several)]
    columns += [f"{one.contestant} / {first.contestant}" for one in several[1:]]
    rows = []
    for size in first.bytes:
        times = [dict(zip(one.bytes, one.seconds, strict=True)).get(size) for one in several]
        cells = [number(1e6 * t.middle) if t else "" for t in times]
        base = times[0]
        cells += [f"{t.middle / base.middle:.2f}" if t and base else "" for t in times[1:]]
        rows.append((byte_size(size), *cells))
    return Table(first.title, tuple(columns), rows)


def latex(table: Table) -> str:
    """The table in LaTeX, for the package booktabs."""
    lines = [
        "% made by hpccoll study report; needs \\usepackage{booktabs}",
        "\\begin{table}",
        f"\\caption{{{_escaped(table.caption)}}}",
        f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        "\\toprule",
        _row(table.columns),
        "\\midrule",
        *(_row(row) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_escaped, cells)) + " \\\\"


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text).replace("µ", "$\\mu$")
