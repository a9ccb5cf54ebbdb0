# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, by matplotlib: one column wide, in colours that colour-blind readers can tell apart.

Each is drawn once, and saved as PDF for print and as SVG for the page. Width and sizes of type are those of a column of
two-column papers (IEEE, ACM: 3.3 inches); colours, markers and lines all differ, so that a grey print can be read.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpccoll import durable
from hpccoll.text import byte_size
from hpccoll.tools.bench.statistics import Median
from hpccoll.tools.study.agreement import Plot
from hpccoll.tools.study.curves import Curve, Sizes

WIDTH, HEIGHT = 3.3, 2.3
"""Inches, without the legend."""
LEGEND_LINE = 0.16
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito 2008, "Color Universal Design"; the yellow is too pale for lines on white."""
MARKERS = "osD^vPX"
LINES = ("-", "--", "-.", (0, (3, 1, 1, 1)), (0, (5, 1)), (0, (1, 1)), "-")
MOST_TICKS = 8
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "ooo")
STYLE: Any = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "lines.markersize": 4, "lines.linewidth": 1.2, "axes.grid": True,
    "axes.axisbelow": True, "grid.alpha": 0.3,
    "pdf.fonttype": 42, "svg.hashsalt": "hpccoll", "svg.fonttype": "path", "legend.frameon": False,
}  # fmt: skip
Figure = Any
Draw = Callable[[Any], None]


def drawn(draw: Draw, height: float = HEIGHT) -> Figure:
    """A figure of one column."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Blank

    with mpl.rc_context(STYLE):
        figure = Blank(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        figure.set_figheight(height + LEGEND_LINE * math.ceil(len(labels) / 2))
        figure.legend(handles, labels, loc="outside upper left", ncols=2)  # outside, so it never covers data
    return figure


def save(figure: Figure, file: Path) -> str:
    """Save as PDF.

    :returns: the same as SVG, to stand in a page
    """
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context(STYLE):
        with durable.replacing(file) as fresh:
            figure.savefig(fresh, format="pdf", metadata={"CreationDate": None})
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _style(number: int) -> dict[str, Any]:
    n = number % len(COLOURS)
    return {"color": COLOURS[n], "marker": MARKERS[n], "linestyle": LINES[n], "capsize": 2}


def _errors(values: Sequence[Median]) -> list[list[float]]:
    return [[max(0.0, v.middle - v.low) for v in values], [max(0.0, v.high - v.middle) for v in values]]


def _nodes_axis(axes: Any, curves: Sequence[Curve]) -> list[int]:
    nodes = sorted({point.nodes for curve in curves for point in curve.points})
    axes.set_xscale("log", base=2)
    shown = sorted({*nodes, *(n for curve in curves if curve.beyond for n in curve.beyond.nodes)})
    if len(shown) > MOST_TICKS:
        shown = shown[:: (len(shown) + MOST_TICKS - 1) // MOST_TICKS]
    axes.set_xticks(shown, [str(n) for n in shown])
    axes.minorticks_off()
    axes.set_xlabel("Nodes")
    if len(nodes) == 1:
        axes.set_xlim(nodes[0] / 2, nodes[0] * 2)
    return nodes


def _from_zero(axes: Any) -> None:
    """Start the axis at zero, with a margin at the top for the markers of nearly equal values."""
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _predict(axes: Any, number: int, curve: Curve, values: Sequence[Median], factor: float = 1.0) -> None:
    """Draw predictions: a thin line with hollow markers, and a band for the error."""
    if not curve.beyond:
        return
    nodes, colour = curve.beyond.nodes, COLOURS[number % len(COLOURS)]
    axes.plot(nodes, [factor * v.middle for v in values], color=colour, linestyle=(0, (1, 2)), linewidth=0.9,
              marker=MARKERS[number % len(MARKERS)], markerfacecolor="white", markersize=3,
              label=f"{curve.contestant}, predicted")  # fmt: skip
    axes.fill_between(nodes, [factor * v.low for v in values], [factor * v.high for v in values], color=colour,
                      alpha=0.15, linewidth=0)  # fmt: skip


def step_time(curves: Sequence[Curve]) -> Figure:
    """Seconds of a step over nodes, with the ideal line of each kind of scaling."""

    def draw(axes: Any) -> None:
        nodes = _nodes_axis(axes, curves)
        for number, curve in enumerate(curves):
            values = [point.seconds for point in curve.points]
            x = [point.nodes for point in curve.points]
            axes.errorbar(x, [1e3 * v.middle for v in values], [[1e3 * e for e in s] for s in _errors(values)],
                          label=curve.contestant, **_style(number))  # fmt: skip
            _predict(axes, number, curve, curve.beyond.seconds if curve.beyond else (), 1e3)
        base = 1e3 * min(c.points[0].seconds.middle for c in curves if c.points[0].nodes == nodes[0])
        ideal = [base if curves[0].weak else base * nodes[0] / n for n in nodes]
        axes.plot(nodes, ideal, color="0.5", linewidth=1, linestyle=":", label="ideal")
        axes.set_ylabel("Time of a step (ms)")
        _from_zero(axes)

    return drawn(draw)


def speedup(curves: Sequence[Curve]) -> Figure:
    """Work per second, relative to the fewest nodes."""

    def draw(axes: Any) -> None:
        nodes = _nodes_axis(axes, curves)
        for number, curve in enumerate(curves):
            values = [point.speedup for point in curve.points]
            axes.errorbar([p.nodes for p in curve.points], [v.middle for v in values], _errors(values),
                          label=curve.contestant, **_style(number))  # fmt: skip
        ideal = [n / nodes[0] for n in nodes]
        axes.plot(nodes, ideal, color="0.5", linewidth=1, linestyle=":", label="ideal")
        if len(nodes) > 1:
            axes.set_yscale("log", base=2)
            least = min(point.speedup.low for curve in curves for point in curve.points)
            below = [2.0**n for n in range(math.floor(math.log2(least)), 0)] if least > 0 else []
            axes.set_yticks([*below, *ideal], [f"{value:g}" for value in (*below, *ideal)])
            axes.minorticks_off()
        axes.set_ylabel(f"Speed-up over {nodes[0]} node{'s' if nodes[0] > 1 else ''}")

    return drawn(draw)


def efficiency(curves: Sequence[Curve]) -> Figure:
    """Parallel efficiency over nodes."""

    def draw(axes: Any) -> None:
        _nodes_axis(axes, curves)
        top = 1.0
        for number, curve in enumerate(curves):
            values = [point.efficiency for point in curve.points]
            top = max(top, *(v.high for v in values))
            axes.errorbar([p.nodes for p in curve.points], [v.middle for v in values], _errors(values),
                          label=curve.contestant, **_style(number))  # fmt: skip
            _predict(axes, number, curve, curve.beyond.efficiency if curve.beyond else ())
        axes.axhline(1, color="0.5", linewidth=1, linestyle=":", label="ideal")
        axes.set_ylim(0, 1.05 * top)
        axes.set_ylabel("Parallel efficiency")

    return drawn(draw)


def breakdown(curves: Sequence[Curve]) -> Figure:
    """The parts of a step as stacked bars: a group per number of nodes, in it a bar per contestant."""

    def draw(axes: Any) -> None:
        names = list(dict.fromkeys(name for curve in curves for point in curve.points for name in point.parts))
        bars = [(point, curve) for curve in curves for point in curve.points]
        bars.sort(key=lambda bar: bar[0].nodes)
        at, labels, x, last = [], [], 0.0, None
        for point, curve in bars:
            x += 1.0 if point.nodes == last or last is None else 1.6
            last = point.nodes
            at.append(x)
            labels.append(f"{curve.contestant}, {point.nodes}")
        bottom = [0.0] * len(bars)
        for number, name in enumerate(names):
            heights = [1e3 * point.parts.get(name, 0.0) for point, _ in bars]
            axes.bar(at, heights, 0.8, bottom, label=name, color=COLOURS[number % 7], hatch=HATCHES[number % 7],
                     edgecolor="white", linewidth=0.5)  # fmt: skip
            bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
        axes.set_xticks(at, labels, rotation=90)
        axes.set_xlabel("Contestant, nodes")
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("Time of a step (ms)")
        _from_zero(axes)

    return drawn(draw, 1.3 * HEIGHT)


def _sizes_axis(axes: Any, several: Sequence[Sizes]) -> None:
    axes.set_xscale("log", base=2)
    found = sorted({size for one in several for size in one.bytes if size})
    shown = found if len(found) < 6 else found[:: (len(found) + 4) // 5]
    axes.set_xticks(shown, [byte_size(size) for size in shown])
    axes.minorticks_off()
    axes.set_xlabel("Size")


def latency(several: Sequence[Sizes]) -> Figure:
    """Time of one call over sizes, both logarithmic."""

    def draw(axes: Any) -> None:
        _sizes_axis(axes, several)
        for number, one in enumerate(several):
            errors = [[1e6 * e for e in side] for side in _errors(one.seconds)]
            axes.errorbar(one.bytes, [1e6 * v.middle for v in one.seconds], errors, label=one.contestant,
                          **_style(number))  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylabel("Time of a call (µs)")

    return drawn(draw)


def over_ranks(plot: Plot) -> Figure:
    """Values over numbers of ranks; modelled values have hollow markers and thin dotted lines."""

    def draw(axes: Any) -> None:
        ranks = sorted({n for line in plot.lines for n in line.ranks})
        axes.set_xscale("log")
        axes.set_xticks(ranks, [f"{n:,}" for n in ranks])
        axes.minorticks_off()
        axes.set_xlabel("Ranks")
        for number, line in enumerate(plot.lines):
            style = _style(number)
            if line.modelled:
                style |= {"markerfacecolor": "white", "linestyle": (0, (1, 2)), "linewidth": 0.9}
            axes.errorbar(line.ranks, [v.middle for v in line.values], _errors(line.values), label=line.label, **style)
        axes.set_ylabel(plot.axis)
        _from_zero(axes)

    return drawn(draw)


def bandwidth(several: Sequence[Sizes]) -> Figure:
    """The bandwidth of the slowest link, busbw, over sizes."""

    def draw(axes: Any) -> None:
        _sizes_axis(axes, several)
        for number, one in enumerate(several):
            axes.plot(one.bytes, [rate / 1e9 for rate in one.busbw], label=one.contestant,
                      **{k: v for k, v in _style(number).items() if k != "capsize"})  # fmt: skip
        axes.set_ylabel("busbw (GB/s)")
        _from_zero(axes)

    return drawn(draw)
