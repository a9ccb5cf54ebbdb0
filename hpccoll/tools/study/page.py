# SPDX-License-Identifier: Apache-2.0
"""The report of a study: one page that opens without a server, figures for print and tables for LaTeX."""

import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from hpccoll import durable
from hpccoll.tools.bench.results import Results, ResultsError, launch_values, warnings
from hpccoll.tools.study import agreement, curves, figures, tables
from hpccoll.tools.study.tables import Table

VIRTUAL = ("engine", "start")
"""Kinds of cases whose nodes are only counted: one process measures them."""


@dataclass(frozen=True)
class Drawn:
    """A figure on the page."""

    svg: str
    caption: str
    file: str


@dataclass(frozen=True)
class Section:
    """A kind of scaling, or a collective."""

    title: str
    figures: list[Drawn]
    table: Table


def check_packages() -> None:
    """Check the packages before anything runs.

    :raises ResultsError: a package is missing
    """
    for module in ("matplotlib", "jinja2", "scipy"):
        if importlib.util.find_spec(module) is None:
            raise ResultsError(f"a report is made with {module}, which is missing: pip install 'hpccoll[study]'")


def write(results: Results, name: str, folder: Path, more_warnings: Sequence[str] = (), serif: bool = False) -> Path:
    """Write report.html, figures/*.pdf, figures/*.svg and tables/*.tex.

    :param more_warnings: further warnings beside those of the runs, such as missing runs
    :param serif: draw the figures in a font with serifs
    :returns: the page
    :raises ResultsError: matplotlib or Jinja2 is missing, or a point has too few samples
    """
    check_packages()
    from jinja2 import Environment, PackageLoader

    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    scaled = curves.curves(results)
    agreed = agreement.parts(results)
    with figures.fonts(serif):
        sections = [*_scaling(scaled, folder), *_agreement(agreed, folder), *_collectives(results, folder)]
    environment = Environment(loader=PackageLoader("hpccoll.tools.study", "."), autoescape=True, trim_blocks=True)
    page = folder / "report.html"
    durable.write_text(
        page,
        environment.get_template("report.html.j2").render(
            name=name,
            sections=sections,
            warnings=[*more_warnings, *warnings(results)],
            summary=_summary(results),
            facts=_facts(results),
            modelled=_modelled(scaled, agreed),
        ),
    )
    return page


def _scaling(scaled: Sequence[curves.Curve], folder: Path) -> list[Section]:
    found = []
    for what, group in groupby(scaled, key=lambda curve: curve.what):
        several = list(group)
        points = [point for curve in several for point in curve.points]
        counted = tables.counted(several)
        about = f"Bars: {tables.bounds_of(point.seconds for point in points)}; dots: launches. {counted}"
        drawn = [
            ("time", figures.step_time, f"Time of a step. {about}"),
            ("speedup", figures.speedup, f"Work per second, relative to the fewest nodes. {about}"),
            ("efficiency", figures.efficiency, f"Speed-up divided by the increase in ranks. {about}"),
        ]
        if any(point.parts for point in points):
            parts = f"Where the time of a step goes: medians of its parts. {counted}"
            drawn.append(("breakdown", figures.breakdown, parts))
        found.append(_section(what, several, drawn, tables.steps(several), folder))
    return found


def _over_ranks(plot: agreement.Plot, _: None) -> figures.Figure:
    return figures.over_ranks(plot)


def _agreement(agreed: Sequence[agreement.Part], folder: Path) -> list[Section]:
    return [
        _section(
            part.table.caption,
            None,
            [(plot.kind, partial(_over_ranks, plot), plot.caption) for plot in part.plots],
            part.table,
            folder,
        )
        for part in agreed
    ]


def _collectives(results: Results, folder: Path) -> list[Section]:
    found = []
    for title, group in groupby(sorted(curves.by_size(results), key=lambda one: one.title), key=lambda one: one.title):
        several = sorted(group, key=lambda one: not one.contestant.startswith("hpccoll"))
        drawn = []
        if max(several[0].bytes) > 0:
            drawn = [
                ("latency", figures.latency, f"Time of one call. {_bars(several)}"),
                ("bandwidth", figures.bandwidth, "busbw, as nccl-tests defines it."),
            ]
        found.append(_section(title, several, drawn, tables.sizes(several), folder))
    return found


def _bars(several: Sequence[curves.Sizes]) -> str:
    """Explain the bars of a figure; nothing is known beyond a single launch."""
    values = [value for one in several for value in one.seconds]
    counts = [len(value.points) for value in values]
    if max(counts) == 1:
        return "One launch."
    return f"Bars: {tables.bounds_of(values)}; dots: launches, {min(counts)} at least."


def _section(
    title: str, several: Any, drawn: Sequence[tuple[str, Callable[[Any], Any], str]], table: Table, folder: Path
) -> Section:
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    shown = []
    for kind, draw, caption in drawn:
        file = f"figures/{stem}-{kind}.pdf"
        shown.append(Drawn(figures.save(draw(several), folder / file), caption, file))
    durable.write_text(folder / "tables" / f"{stem}.tex", tables.latex(table, stem))
    return Section(title, shown, table)


def _modelled(scaled: Sequence[curves.Curve], agreed: Sequence[agreement.Part]) -> str:
    """Describe the predictions on the page and their quality; "" if everything was measured."""
    counted = (
        f"Columns and hollow markers of the {agreement.MODELLED}, were calculated. "
        if any(line.modelled for part in agreed for plot in part.plots for line in plot.lines)
        else ""
    )
    return (counted + _predicted([curve for curve in scaled if curve.beyond])).rstrip()


def _predicted(several: Sequence[curves.Curve]) -> str:
    if not several:
        return ""
    errors = ", ".join(
        f"{curve.what}, {curve.contestant}: {curve.beyond.error:.0%}" for curve in several if curve.beyond
    )
    return (
        "Thin dotted lines with hollow markers are predictions for more nodes than were measured, by a cost model that "
        "was fitted to the points of each curve and to the collectives on this page. Their bands are 95 % intervals, "
        f"widened by the error with which the model explains what was measured ({errors})."
    )


def _summary(results: Results) -> str:
    count = len(results.launches)
    # A launch that serves weak and strong scaling gives its samples to a case of each; they were measured once.
    cases = {(replace(key, what=""), case.samples.tobytes()): case for key, case in results.cases.items()}
    samples = sum(len(case.samples) for case in cases.values())
    nodes = sorted({key.nodes for key in results.cases if key.kind not in VIRTUAL}) or [1]
    return (
        f"{_many(count, 'launch', 'es')} on {', '.join(map(str, nodes))} node{'s' * (nodes != [1])}, "
        f"{_many(len(results.cases), 'case', 's')}, {samples} samples; "
        f"hpccoll {launch_values(results.launches, 'hpccoll')}, {launch_values(results.launches, 'date')[:10]}."
    )


def _many(count: int, word: str, plural: str) -> str:
    return f"{count} {word}{plural * (count != 1)}"


def _facts(results: Results) -> list[tuple[str, str]]:
    launches = results.launches
    names = ("hpccoll", "revision", "build", "launcher", "job", "command")
    found = [(name, launch_values(launches, name)) for name in names]
    hosts = dict.fromkeys(str(rank.get("host")) for launch in launches for rank in launch.get("placement", []))
    found.append(("hosts", ", ".join(hosts)))
    machines = [launch.get("machine", {}) for launch in launches]
    for name in ("processor", "processors", "memory GiB", "kernel", "governor"):
        found.append((name, launch_values(machines, name)))  # noqa: PERF401
    packages = [launch.get("packages", {}) for launch in launches]
    names_of = dict.fromkeys(name for one in packages for name in one)
    found.append(("packages", ", ".join(f"{name} {launch_values(packages, name)}" for name in names_of)))
    return [(name, value) for name, value in found if value]
