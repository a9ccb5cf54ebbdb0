# SPDX-License-Identifier: Apache-2.0
"""The tables of a report: rows for the page, and the same as LaTeX (booktabs)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpccoll.text import byte_size
from hpccoll.tools.bench.statistics import Median
from hpccoll.tools.study.curves import Curve, Sizes

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "\\": "\\textbackslash{}",
}


COLUMN = 238
"""Points: the width of a column of a paper, 3.3 inches."""
NORMAL, NARROW = 4.25, 2.4
"""Points: about the widths of digits, and of the characters in THIN, in a type of 8 points."""
THIN = " .,:;()[]/ijlft"
GAP = 3
"""Points on each side of a column of the table."""


@dataclass(frozen=True)
class Table:
    """A heading, columns and rows of text."""

    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    printed: Table | None = None
    """The same for a column of a paper, where that needs fewer columns."""


def steps(curves: Sequence[Curve]) -> Table:
    """One kind of scaling: a row per contestant and number of nodes, each value with its interval."""
    items = any(point.items for curve in curves for point in curve.points)
    bounds = bounds_of([point.seconds for curve in curves for point in curve.points])
    mixed = ", or " in bounds
    columns = (
        "",
        "nodes",
        "ranks",
        "step (ms)",
        bounds,
        "speed-up",
        bounds,
        "efficiency",
        bounds,
        "samples (launches)",
    )
    rows, short = list[tuple[str, ...]](), list[tuple[str, ...]]()
    for curve in curves:
        for i, point in enumerate(curve.points):
            row = [
                curve.contestant, str(point.nodes), str(point.ranks), number(1e3 * point.seconds.middle),
                interval(point.seconds, 1e3, mixed), number(point.speedup.middle), interval(point.speedup, 1, mixed),
                f"{point.efficiency.middle:.3f}", interval(point.efficiency, 1, mixed),
                f"{point.samples} ({point.launches})",
            ]  # fmt: skip
            rows.append((*row, number(point.items)) if items else tuple(row))
            label = "" if i else curve.label
            short.append((label, row[1], *_with_bounds(point.seconds, 1e3), *_with_bounds(point.efficiency)))
    about = f"{curves[0].what}. {counted(curves)} In brackets: {bounds}."
    printed = Table(about, ("", "nodes", "step (ms)", "", "efficiency", ""), short)
    return Table(curves[0].what, (*columns, "items/s") if items else columns, rows, printed)


def counted(curves: Sequence[Curve]) -> str:
    """Say how many launches and samples the points have."""
    launches, samples = ([getattr(p, name) for c in curves for p in c.points] for name in ("launches", "samples"))
    return f"Each point: {_from_to(launches)} launch{'es' * (max(launches) > 1)}, {_from_to(samples)} samples."


def _from_to(counts: Sequence[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def bounds_of(values: Iterable[Median]) -> str:
    """Say what the bounds of these values are."""
    kinds = {value.ranged for value in values}
    names = ["95 % interval"] * (False in kinds) + ["range of launches"] * (True in kinds)
    return ", or ".join(names)


def interval(value: Median, factor: float = 1.0, marked: bool = True) -> str:
    """The bounds as text; "" where there is nothing between them.

    :param marked: say it where they are a range, because the heading does not
    """
    text = f"{number(factor * value.low)} to {number(factor * value.high)}" if value.low < value.high else ""
    return f"{text} (range)" if text and value.ranged and marked else text


def _with_bounds(value: Median, factor: float = 1.0) -> tuple[str, str]:
    """A value and its bounds, with as many decimals as three digits of the value need, and a digit of their width."""
    middle, low, high = (factor * one for one in (value.middle, value.low, value.high))
    decimals = max(0, 2 - math.floor(math.log10(max(middle, 1e-9))))
    if high > low:
        decimals = max(decimals, min(decimals + 2, math.ceil(-math.log10(high - low))))
    text = f"[{low:,.{decimals}f}, {high:,.{decimals}f}]" if value.low < value.high else ""
    return f"{middle:,.{decimals}f}", text


def number(value: float) -> str:
    """Four digits, or all in front of the point: no powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def sizes(several: Sequence[Sizes]) -> Table:
    """One collective: a row per size, with each contestant's time, and the ratio to the first."""
    first = several[0]
    columns = ["size", *(f"{one.label} (µs)" for one in several)]
    columns += [f"{one.label} / {first.label}" for one in several[1:]]
    rows = []
    for size in first.bytes:
        times = [dict(zip(one.bytes, one.seconds, strict=True)).get(size) for one in several]
        cells = [number(1e6 * t.middle) if t else "" for t in times]
        base = times[0]
        cells += [f"{t.middle / base.middle:.2f}" if t and base else "" for t in times[1:]]
        rows.append((byte_size(size), *cells))
    return Table(first.title, tuple(columns), rows)


def latex(table: Table, label: str) -> str:
    """The table in LaTeX, for the package booktabs; over both columns of a page if it is too wide for one.

    :param label: what a reference names, behind `tab:`
    """
    shown = table.printed or table
    kind = "table" if width(shown) <= COLUMN else "table*"
    lines = [
        "% made by hpccoll study report; needs \\usepackage{booktabs}",
        f"\\begin{{{kind}}}",
        "\\centering",
        "\\footnotesize",
        f"\\setlength{{\\tabcolsep}}{{{GAP}pt}}",
        f"\\caption{{{_escaped(shown.caption)}}}",
        f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{@{{}}l{'r' * (len(shown.columns) - 1)}@{{}}}}",
        "\\toprule",
        _head(shown.columns),
        "\\midrule",
        *(_row(row) for row in shown.rows),
        "\\bottomrule",
        "\\end{tabular}",
        f"\\end{{{kind}}}",
    ]
    return "\n".join(lines) + "\n"


def width(table: Table) -> float:
    """Estimate the width in print, in points."""
    whole = 2.0 * GAP * (len(table.columns) - 1)
    first = 0
    for _, count in _spans(table.columns):
        parts = [max((_wide(row[i]) for row in table.rows), default=0.0) for i in range(first, first + count)]
        whole += max(sum(parts), _wide(table.columns[first]) - 2 * GAP * (count - 1))
        first += count
    return whole


def _wide(text: str) -> float:
    return sum(NARROW if c in THIN else NORMAL for c in text)


def _spans(columns: Sequence[str]) -> list[tuple[str, int]]:
    """The headings, and how many columns each has: those without one belong to the heading before."""
    found: list[tuple[str, int]] = []
    for i, column in enumerate(columns):
        if column or not i:
            found.append((column, 1))
        else:
            found[-1] = (found[-1][0], found[-1][1] + 1)
    return found


def _head(columns: Sequence[str]) -> str:
    cells = [
        f"\\multicolumn{{{count}}}{{c}}{{{_escaped(column)}}}" if count > 1 else _escaped(column)
        for column, count in _spans(columns)
    ]
    return " & ".join(cells) + " \\\\"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_escaped, cells)) + " \\\\"


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text).replace("µ", "$\\mu$")
