# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, by matplotlib: one column wide, in colours that colour-blind readers can tell apart.

Each is drawn once, and saved as PDF for print and as SVG for the page. Width and sizes of type are those of a column of
two-column papers (IEEE, ACM: 3.3 inches); colours, markers and lines all differ, so that a grey print can be read. The
axes of all figures are of one height, whatever stands around them, so that they can stand beside each other. A
contestant has one colour on a page, and so has a part of a step.
"""

import contextlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hpccoll import durable
from hpccoll.text import byte_size
from hpccoll.tools.bench.statistics import Median
from hpccoll.tools.study.agreement import Plot
from hpccoll.tools.study.curves import OTHER, Curve, Sizes

WIDTH, AXES_HEIGHT = 3.3, 1.7
"""Inches: of the figure, and of its axes."""
LEGEND_LINE, HANDLE, CHARACTER = 0.16, 0.5, 0.062
"""Inches: of a line of the legend, and about those of its handles and characters."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito 2008, "Color Universal Design"; the yellow is too pale for lines on white."""
MARKERS = "osD^vPX"
LINES = ("-", "--", "-.", (0, (3, 1, 1, 1)), (0, (5, 1)), (0, (1, 1)), "-")
PARTS = {"compute": ("0.8", ""), "exposed communication": ("#882255", "///"), "input": ("#DDCC77", "..."),
         "control plane": ("#117733", "xxx"), OTHER: ("0.5", "\\\\\\")}  # fmt: skip
"""Colour and hatch of the known parts of a step, none of which is a contestant's (Tol 2021, "Colour Schemes"); others
take the free ones."""
FREE_PARTS = (("#332288", "++"), ("#AA4499", "ooo"), ("#88CCEE", "--"))
IDEAL_LABEL = "ideal"
IDEAL: dict[str, Any] = {"linewidth": 0.9, "linestyle": ":"}
PANELS = 3
"""Arms beside each other in a breakdown."""
MOST_TICKS = 8
STYLE: Any = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "lines.markersize": 4, "lines.linewidth": 1.2, "axes.grid": True,
    "axes.axisbelow": True, "grid.alpha": 0.3,
    "pdf.fonttype": 42, "svg.hashsalt": "hpccoll", "svg.fonttype": "path", "legend.frameon": False,
}  # fmt: skip
SERIF: Any = {"font.family": "serif", "font.serif": ["STIXGeneral"], "mathtext.fontset": "stix"}
"""As the text of most papers; matplotlib brings this font."""
Figure = Any
Draw = Callable[[Any], None]


@contextlib.contextmanager
def fonts(serif: bool) -> Iterator[None]:
    """Draw and save with or without serifs."""
    import matplotlib as mpl

    with mpl.rc_context(SERIF if serif else {}):
        yield


def drawn(draw: Draw, panels: int = 1) -> Figure:
    """A figure of one column.

    :param draw: gets the axes, or with several panels an array of them
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure as Blank

    with mpl.rc_context(STYLE):
        rows, columns = math.ceil(panels / PANELS), min(panels, PANELS)
        figure = Blank(figsize=(WIDTH, 2 * AXES_HEIGHT * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
        draw(axes[0] if panels == 1 else axes[:panels])
        for spare in axes[panels:]:
            spare.remove()
        _legend(figure, axes[:panels])
        figure.draw_without_rendering()  # what stands around the axes has its size now
        around = figure.get_figheight() * (1 - rows * axes[0].get_position().height)
        figure.set_figheight(around + rows * AXES_HEIGHT)
        figure.draw_without_rendering()
    return figure


def _legend(figure: Figure, several: Iterable[Any]) -> None:
    """Write the legend outside of the axes, so that it never covers data."""
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for axes in several:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    order = sorted(found, key=lambda label: (isinstance(found[label], Line2D), label == IDEAL_LABEL))  # measured first
    columns = max(1, int(WIDTH / (HANDLE + CHARACTER * max(map(len, found)))))
    figure.legend([found[label] for label in order], order, loc="outside upper left", ncols=min(columns, 4))


def save(figure: Figure, file: Path) -> str:
    """Save as PDF, and as SVG beside it.

    :returns: the SVG, to stand in a page
    """
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context(STYLE):
        with durable.replacing(file) as fresh:
            figure.savefig(fresh, format="pdf", metadata={"CreationDate": None})
        figure.savefig(text, format="svg", metadata={"Date": None})
    durable.write_text(file.with_suffix(".svg"), text.getvalue())
    return text.getvalue()[text.getvalue().index("<svg") :]


def _style(number: int) -> dict[str, Any]:
    n = number % len(COLOURS)
    return {"color": COLOURS[n], "marker": MARKERS[n], "linestyle": LINES[n]}


def _series(axes: Any, x: Sequence[int], values: Sequence[Median], factor: float, label: str, **style: Any) -> None:
    """Draw medians with their intervals or ranges, and a dot for each launch."""
    below = [factor * max(0.0, v.middle - v.low) for v in values]
    above = [factor * max(0.0, v.high - v.middle) for v in values]
    axes.errorbar(x, [factor * v.middle for v in values], [below, above], label=label, capsize=2, **style)
    dots = [(at, factor * one) for at, v in zip(x, values, strict=True) for one in v.points if len(v.points) > 1]
    if dots:
        axes.plot(*zip(*dots, strict=True), linestyle="", marker="o", markersize=2.4, markeredgewidth=0.4,
                  markeredgecolor="white", color=style["color"], zorder=3)  # fmt: skip


def _nodes_axis(axes: Any, curves: Sequence[Curve]) -> list[int]:
    """Write nodes below and ranks above."""
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
    per_node = {point.ranks / point.nodes for curve in curves for point in curve.points}
    if len(per_node) == 1:
        above = axes.secondary_xaxis("top")
        above.set_xticks(shown, [f"{n * max(per_node):g}" for n in shown])
        above.minorticks_off()
        above.set_xlabel("Ranks")
    return nodes


def _logarithmic(axis: Any, base: int = 10) -> None:
    """Label a logarithmic axis also where it spans less than a decade, and without powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base, subs=(1, 2, 5) if base == 10 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _ideal(axes: Any, curve: Curve, first: float, slope: int) -> None:
    """Draw the ideal of a curve from its first point, in its own colour."""
    nodes = [point.nodes for point in curve.points]
    values = [first * (n / nodes[0]) ** slope for n in nodes]
    axes.plot(nodes, values, color=_style(curve.number)["color"], **IDEAL)


def _ideal_legend(axes: Any) -> None:
    axes.plot([], [], color="0.5", label=IDEAL_LABEL, **IDEAL)


def _from_zero(axes: Any) -> None:
    """Start the axis at zero, with a margin at the top for the markers of nearly equal values."""
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _predict(axes: Any, curve: Curve, values: Sequence[Median], factor: float = 1.0) -> None:
    """Draw predictions: a thin line with hollow markers, and a band for the error."""
    if not curve.beyond:
        return
    nodes, colour = curve.beyond.nodes, _style(curve.number)["color"]
    axes.plot(nodes, [factor * v.middle for v in values], color=colour, linestyle=(0, (1, 2)), linewidth=0.9,
              marker=_style(curve.number)["marker"], markerfacecolor="white", markersize=3,
              label=f"{curve.label}, predicted")  # fmt: skip
    axes.fill_between(nodes, [factor * v.low for v in values], [factor * v.high for v in values], color=colour,
                      alpha=0.15, linewidth=0)  # fmt: skip


def step_time(curves: Sequence[Curve]) -> Figure:
    """Seconds of a step over nodes; for strong scaling both axes are logarithmic, so that the ideal is a line."""

    def draw(axes: Any) -> None:
        _nodes_axis(axes, curves)
        for curve in curves:
            _series(axes, [point.nodes for point in curve.points], [point.seconds for point in curve.points], 1e3,
                    curve.label, **_style(curve.number))  # fmt: skip
            _predict(axes, curve, curve.beyond.seconds if curve.beyond else (), 1e3)
            _ideal(axes, curve, 1e3 * curve.points[0].seconds.middle, 0 if curve.weak else -1)
        _ideal_legend(axes)
        axes.set_ylabel("Time of a step (ms)")
        if curves[0].weak:
            _from_zero(axes)
        else:
            axes.set_yscale("log")
            _logarithmic(axes.yaxis)

    return drawn(draw)


def speedup(curves: Sequence[Curve]) -> Figure:
    """Work per second, relative to the fewest nodes."""

    def draw(axes: Any) -> None:
        nodes = _nodes_axis(axes, curves)
        for curve in curves:
            _series(axes, [point.nodes for point in curve.points], [point.speedup for point in curve.points], 1,
                    curve.label, **_style(curve.number))  # fmt: skip
            _ideal(axes, curve, 1, 1)
        _ideal_legend(axes)
        if len(nodes) > 1:
            axes.set_yscale("log", base=2)
            _logarithmic(axes.yaxis, 2)
        axes.set_ylabel(f"Speed-up over {nodes[0]} node{'s' if nodes[0] > 1 else ''}")

    return drawn(draw)


def efficiency(curves: Sequence[Curve]) -> Figure:
    """Parallel efficiency over nodes."""

    def draw(axes: Any) -> None:
        _nodes_axis(axes, curves)
        for curve in curves:
            _series(axes, [point.nodes for point in curve.points], [point.efficiency for point in curve.points], 1,
                    curve.label, **_style(curve.number))  # fmt: skip
            _predict(axes, curve, curve.beyond.efficiency if curve.beyond else ())
        axes.axhline(1, color="0.5", label=IDEAL_LABEL, **IDEAL)
        axes.set_ylabel("Parallel efficiency")
        _from_zero(axes)

    return drawn(draw)


def breakdown(curves: Sequence[Curve]) -> Figure:
    """The parts of a step as stacked bars over nodes: a panel per contestant, all with the same axes."""
    names = list(dict.fromkeys(name for curve in curves for point in curve.points for name in point.parts))
    nodes = sorted({point.nodes for curve in curves for point in curve.points})

    def draw(several: Any) -> None:
        panels = [several] if len(curves) == 1 else list(several)
        for axes, curve in zip(panels, curves, strict=True):
            _bars(axes, curve, names, nodes)
        panels[0].set_ylabel("Time of a step (ms)")
        _from_zero(panels[0])

    return drawn(draw, len(curves))


def _bars(axes: Any, curve: Curve, names: Sequence[str], nodes: Sequence[int]) -> None:
    """Stack the parts of a contestant's steps."""
    free = iter(FREE_PARTS * len(names))
    at = [nodes.index(point.nodes) for point in curve.points]
    bottom = [0.0] * len(at)
    for name in names:
        colour, hatch = PARTS.get(name) or next(free)
        heights = [1e3 * point.parts.get(name, 0.0) for point in curve.points]
        axes.bar(at, heights, 0.8, bottom, label=name, color=colour, hatch=hatch, edgecolor="white",
                 linewidth=0.5)  # fmt: skip
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(nodes)), [str(n) for n in nodes])
    axes.set_title(curve.label)
    axes.set_xlabel("Nodes")
    axes.grid(visible=False, axis="x")


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
        for one in several:
            _series(axes, one.bytes, one.seconds, 1e6, one.label, **_style(one.number))
        axes.set_yscale("log")
        _logarithmic(axes.yaxis)
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
            _series(axes, line.ranks, line.values, 1, line.label, **style)
        axes.set_ylabel(plot.axis)
        _from_zero(axes)

    return drawn(draw)


def bandwidth(several: Sequence[Sizes]) -> Figure:
    """The bandwidth of the slowest link, busbw, over sizes."""

    def draw(axes: Any) -> None:
        _sizes_axis(axes, several)
        for one in several:
            axes.plot(one.bytes, [rate / 1e9 for rate in one.busbw], label=one.label, **_style(one.number))
        axes.set_ylabel("busbw (GB/s)")
        _from_zero(axes)

    return drawn(draw)
