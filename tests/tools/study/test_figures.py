# SPDX-License-Identifier: Apache-2.0
"""The figures and tables of a report, by their data and artists: what was made must be what is drawn."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from made_studies import collective, step
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from hpccoll.tools.bench.results import Case, Results
from hpccoll.tools.study import curves, figures, tables

ARMS = ("fp32", "fp16", "bf16")
NODES = (1, 2, 8)
DRAW = (figures.step_time, figures.speedup, figures.efficiency, figures.breakdown)


@cache
def made(scaling: str, launches: int = 6) -> Results:
    """Three arms, whose file has them in another order than the results."""
    found = Results([{"definition": {"arms": {arm: {} for arm in ARMS}}} for _ in range(launches)])
    for arm in sorted(ARMS):
        for nodes in NODES:
            case = step(arm, nodes, 0.1 / (nodes if scaling == "strong" else 1) + 0.01, scaling, launches=launches)
            shift = np.random.default_rng([len(arm), nodes]).normal(1, 0.05, launches)
            found.cases[case.key] = replace(case, samples=case.samples * shift[case.launch])
    return found


@cache
def several_of(scaling: str, launches: int = 6) -> list[curves.Curve]:
    return curves.curves(made(scaling, launches))


def case_of(scaling: str, arm: str, nodes: int) -> Case:
    return next(c for c in made(scaling).cases.values() if (c.key.arm, c.key.nodes) == (arm, nodes))


def medians(case: Case) -> np.ndarray:
    return np.array([np.median(case.samples[case.launch == n]) for n in range(6)])


def lines(axes: Any) -> dict[str, np.ndarray]:
    """The data of the series, by label."""
    found = {}
    for container, label in zip(*axes.get_legend_handles_labels(), strict=True):
        line = container[0] if isinstance(container, tuple) else container
        found[label] = np.array(line.get_data())
    return found


def dotted(axes: Any) -> dict[str, np.ndarray]:
    """The ideals by their colour."""
    return {line.get_color(): line.get_xydata() for line in axes.get_lines() if line.get_linestyle() == ":"}


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_times_with_the_ideal_of_each_arm(scaling: str) -> None:
    axes = figures.step_time(several_of(scaling)).axes[0]
    assert axes.get_xscale() == "log" and axes.get_yscale() == ("log" if scaling == "strong" else "linear")
    drawn = lines(axes)
    assert set(drawn) == {"ideal", *ARMS}
    for number, arm in enumerate(ARMS):
        x, y = drawn[arm]
        expected = [1e3 * np.median(medians(case_of(scaling, arm, n))) for n in NODES]
        assert tuple(x) == NODES and y == pytest.approx(expected)
        ideal = dotted(axes)[figures.COLOURS[number]]
        assert ideal[:, 1] == pytest.approx([expected[0] / (n if scaling == "strong" else 1) for n in NODES])
    assert axes.get_ylabel() == "Time of a step (ms)" and axes.get_xlabel() == "Nodes"
    assert scaling == "strong" or axes.get_ylim()[0] == 0


def test_a_dot_for_each_launch() -> None:
    several = several_of("weak")
    for draw, value in (
        (figures.step_time, lambda case, _: 1e3 * medians(case)),
        (figures.efficiency, lambda case, base: np.median(medians(base)) / medians(case)),
    ):
        axes = draw(several).axes[0]
        dots = {line.get_color(): line.get_xydata() for line in axes.get_lines() if line.get_linestyle() == "None"
                and line.get_marker() == "o" and line.get_markersize() < 3}  # fmt: skip
        for number, arm in enumerate(ARMS):
            found = dots[figures.COLOURS[number]]
            expected = value(case_of("weak", arm, 8), case_of("weak", arm, 1))
            assert sorted(found[found[:, 0] == 8, 1]) == pytest.approx(sorted(expected))


def test_speedup_and_efficiency_have_one_interval() -> None:
    """The ends of the error bars; for weak scaling to 8 times the ranks one is 8 times the other."""
    several = several_of("weak")
    ends = []
    for draw in (figures.speedup, figures.efficiency):
        _, _, (bars,) = draw(several).axes[0].containers[0].lines
        ends.append(bars.get_segments()[2][:, 1])
    assert ends[0] == pytest.approx(8 * ends[1]) and ends[1][0] < ends[1][1]


def test_nodes_below_and_ranks_above() -> None:
    figure = figures.speedup(several_of("strong"))
    (above,) = figure.axes[0].child_axes
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["1", "2", "8"]
    assert [tick.get_text() for tick in above.get_xticklabels()] == ["2", "4", "16"]
    assert above.get_xlabel() == "Ranks" and above.get_xlim() == figure.axes[0].get_xlim()
    assert figure.axes[0].get_yscale() == "log"


@pytest.mark.slow
def test_arms_are_in_the_order_of_the_file_with_one_colour_everywhere() -> None:
    several = several_of("strong")
    assert [curve.label for curve in several] == list(ARMS)
    for draw in DRAW[:3]:
        figure = draw(several)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [*ARMS, "ideal"]
        containers = {c.get_label(): c[0].get_color() for c in figure.axes[0].containers}
        assert containers == dict(zip(ARMS, figures.COLOURS, strict=False))
    panels = figures.breakdown(several).axes
    assert [axes.get_title() for axes in panels] == list(ARMS)
    colours = {c.get_label(): c[0].get_facecolor()[:3] for axes in panels for c in axes.containers}
    assert set(colours) >= {"compute", "exposed communication"}
    assert not {*map(to_rgb, figures.COLOURS)} & {*colours.values()}


def test_arms_without_a_file_and_peers_have_labels() -> None:
    found = Results([{}])
    for library in ("hpccoll", "openmpi"):
        case = collective(library, 8, 1e-6)
        found.cases[case.key] = case
    for arm in ("", "fp16"):
        case = step(arm, 1, 0.1)
        found.cases[case.key] = case
    assert curves.contestants(found) == {"hpccoll": "hpccoll", "openmpi": "openmpi", "hpccoll fp16": "fp16"}
    case = collective("openmpi", 8, 1e-6)
    key = replace(case.key, arm="fp16")
    found.cases[key] = replace(case, key=key)
    assert curves.contestants(found)["openmpi fp16"] == "openmpi fp16"


@pytest.mark.slow
def test_all_axes_have_one_height_and_panels_one_scale() -> None:
    heights = []
    for scaling in ("weak", "strong"):
        for draw in DRAW:
            figure = draw(several_of(scaling))
            assert figure.get_figwidth() == figures.WIDTH
            heights += [axes.get_position().height * figure.get_figheight() for axes in figure.axes]
        for one, other in pairwise(figures.breakdown(several_of(scaling)).axes):
            assert one.get_ylim() == other.get_ylim() and one.get_xlim() == other.get_xlim()
    assert max(heights) - min(heights) < 0.05 and heights[0] == pytest.approx(figures.AXES_HEIGHT, abs=0.05)


def test_bars_add_up_to_the_parts_of_a_step() -> None:
    several = several_of("strong")
    for axes, curve in zip(figures.breakdown(several).axes, several, strict=True):
        heights = [sum(bars[i].get_height() for bars in axes.containers) for i in range(len(NODES))]
        assert heights == pytest.approx([1e3 * sum(point.parts.values()) for point in curve.points])


@pytest.mark.parametrize(("serif", "family"), [(False, ["sans-serif"]), (True, ["serif"])])
def test_fonts(serif: bool, family: Sequence[str]) -> None:
    with figures.fonts(serif):
        axes = figures.efficiency(several_of("weak")).axes[0]
    assert axes.yaxis.label.get_fontfamily() == family


@pytest.mark.parametrize(("launches", "said"), [(3, "range of launches"), (6, "95 % interval")])
def test_what_bars_and_tables_say(launches: int, said: str) -> None:
    several = several_of("weak", launches)
    table = tables.steps(several)
    assert table.columns.count(said) == 3 and all(len(row) == len(table.columns) for row in table.rows)
    assert tables.counted(several) == f"Each point: {launches} launches, {20 * launches} samples."
    assert table.printed and f"In brackets: {said}." in table.printed.caption


def width(cells: Sequence[str]) -> float:
    """Points of the widest one in a type of 8 points, measured with matplotlib's own copy of a font of papers."""
    font = FontProperties(family="STIXGeneral")
    return max(TextPath((0, 0), cell, size=8, prop=font).get_extents().width if cell else 0.0 for cell in cells)


def test_the_printed_table_fits_a_column() -> None:
    table = tables.steps(several_of("weak")).printed
    assert table
    widths = [width([row[i] for row in table.rows]) for i in range(len(table.columns))]
    assert sum(widths) + 2 * tables.GAP * (len(widths) - 1) <= 3.3 * 72.27
    text = tables.latex(table, "a-study")
    assert "\\begin{table}\n" in text and "\\label{tab:a-study}" in text
    assert "\\multicolumn{2}{c}{step (ms)} & \\multicolumn{2}{c}{efficiency}" in text
    rows = [line for line in text.splitlines() if " & [" in line]
    assert len(rows) == 9 and sum(row.startswith(ARMS) for row in rows) == 3
    wide = replace(table, columns=("",) * 12, rows=[("a long cell",) * 12])
    assert "\\begin{table*}" in tables.latex(wide, "wide")
