# SPDX-License-Identifier: Apache-2.0
"""Presents the simulated times: curves beside the published points, as pictures and as tables."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpccoll.tools.bench import predecessor, training
from hpccoll.tools.model import chunks, predict
from hpccoll.tools.study import figures

Run = dict[str, Any]
Curves = dict[str, list[tuple[int, float]]]
"""By the name of a curve: GPUs (ranks), and the value."""
PLAIN = {"what", "machine", "nodes", "bytes", "rails", "shard", "depth"}
INJECTION, LATENCY, TICK = 23e9, 1.4e-6, 1e-3
"""The figures of Summit in machine.hpp: bytes per second of a node; a message over four links with overheads."""
SIZE = 3 << 20
"""Bytes of the allreduce whose time is drawn over the GPUs."""
COMPUTE = (0.05, 0.111, 0.3)
"""Seconds of computing in a step: ResNet-50 in FP32 with a batch of 32 per V100 takes about 0.1."""
NOISE = 0.01
"""Standard deviation of the computing of a rank; all ranks wait for the slowest."""
PUBLISHED = [  # GPUs, efficiency, source
    (6_144, 0.87, "ResNet-50, Yin et al. 2019"),
    (27_360, 0.907, "DeepLabv3+, Kurth et al. 2018"),
    (27_600, 0.93, "STEMDL, Laanait et al. 2019"),
]


def select(results: list[Run], **wanted: Any) -> list[Run]:
    """Return the results with these settings, whose other settings are the defaults."""
    found = [run for run in results if all(run["asked"].get(k) == v for k, v in wanted.items())]
    return sorted((run for run in found if set(run["asked"]) <= PLAIN | set(wanted)), key=lambda run: run["nodes"])


def usual(run: Run) -> bool:
    """Whether the chunks are those of a job, on these nodes or (until decision 86) on few."""
    asked, per_node = run["asked"], {"summit": 6, "frontier": 8}[run["asked"]["machine"]]
    cuts = [chunks.cut(1 << 30, "float32", "float32", per_node, nodes=nodes) for nodes in (2, run["nodes"])]
    return (asked["rails"], asked["shard"], asked["depth"]) in [(cut.rails, cut.shard, cut.depth) for cut in cuts]


def batches(results: list[Run], machine: str = "summit", **more: Any) -> dict[int, Callable[[int], float]]:
    """Return, by nodes, a function from bytes to the seconds of a batch: a line through the simulated sizes."""
    points: dict[int, list[tuple[int, float]]] = {}
    for run in select(results, what="allreduce", machine=machine, **more):
        if more or usual(run):
            points.setdefault(run["nodes"], []).append((run["bytes"], run["seconds"]))
    found: dict[int, Callable[[int], float]] = {}
    for nodes, several in points.items():
        (small, least), (large, most) = min(several), max(several)
        if small < large:
            slope = (most - least) / (large - small)
            found[nodes] = lambda n, a=least, b=slope, s=small: max(a * min(1, n / s), a + b * (n - s))  # type: ignore[misc]
    return found


def step(batch: Callable[[int], float], agreeing: float, compute: float, scale: float = 1.0) -> float:
    """Return the seconds of a step of ResNet-50, by the rules of the real engine and with simulated batches.

    :param scale: bytes of an element as a share of float32's
    """
    trace = training.trace("resnet50")
    gradients = [(n, share * compute) for n, share in zip(trace.elements, trace.ready, strict=True)]
    free = 0.0
    for moment, elements in predict.raised(gradients, compute, round(4 * scale)):
        for count in predict.fused(elements, round(predict.FUSION_THRESHOLD / 4 / scale)):
            free = max(free, moment + agreeing) + batch(round(4 * scale * count))
    return max(compute, free)


def slowest(ranks: int) -> float:
    """Return the expected maximum of `ranks` normal computing times, as a factor: about sqrt(2 ln p) deviations."""
    return 1 + NOISE * math.sqrt(2 * math.log(ranks)) if ranks > 1 else 1.0


def efficiencies(results: list[Run], compute: float) -> list[tuple[int, float, float]]:
    """Return GPUs, the efficiency of a step, and the efficiency with noise."""
    agreed = {run["nodes"]: run["seconds"] for run in select(results, what="agreement")}
    found = []
    for nodes, batch in sorted(batches(results).items()):
        near = min(agreed, key=lambda n: abs(math.log(n / nodes)))
        seconds = step(batch, agreed[near], compute)
        found.append((6 * nodes, compute / seconds, compute / (seconds + compute * (slowest(6 * nodes) - 1))))
    return found


# ---- curves ----------------------------------------------------------------------------------------------


def agreement_curves(results: list[Run]) -> Curves:
    """Return the microseconds of an agreement on a step, and those of the published bit vector with its tick."""
    found: Curves = {}
    for label, wanted in (("fan-out 16 (default)", {}), ("fan-out 4", {"fanout": 4})):
        several = select(results, what="agreement", **wanted)
        found[label] = [(run["ranks"], 1e6 * run["seconds"]) for run in several]
    ranks = [n for n, _ in found["fan-out 16 (default)"]]
    found["bit vector, 1 ms ticks"] = [
        (n, 1e6 * (TICK / 2 + predecessor.bit_vector(n, 161).chain * LATENCY)) for n in ranks
    ]
    return found


def allreduce_curves(results: list[Run]) -> Curves:
    """Return the milliseconds of an allreduce of 3 MiB on Summit, and the lower bound of the links."""
    by_lines = {6 * nodes: 1e3 * batch(SIZE) for nodes, batch in batches(results).items()}
    return {
        "as it is": sorted((by_lines | _simulated(results)).items()),
        "parts of 64 elements": sorted(_simulated(results, unit=64).items()),
        "floor of the links": [(n, 1e3 * 2 * (n // 6 - 1) / (n // 6) * SIZE / INJECTION) for n in sorted(by_lines)],
    }


def _simulated(results: list[Run], **more: Any) -> dict[int, float]:
    """Return, by GPUs, the milliseconds of an allreduce of 3 MiB where exactly this size was simulated."""
    several = select(results, what="allreduce", machine="summit", bytes=SIZE, **more)
    return {run["ranks"]: 1e3 * run["seconds"] for run in several if usual(run)}


def efficiency_curves(results: list[Run]) -> Curves:
    """Return the share of a step that is computing, for each time of computing, without noise and with it."""
    found: Curves = {}
    for compute in COMPUTE:
        several = efficiencies(results, compute)
        label = f"step of {1e3 * compute:.0f} ms"
        found[label] = [(n, plain) for n, plain, _ in several]
        found[f"{label}, with noise"] = [(n, noisy) for n, _, noisy in several]
    return found


# ---- pictures --------------------------------------------------------------------------------------------


def _save(figure: Any, file: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context(figures.STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})


def draw(results: list[Run], folder: Path) -> None:
    """Write scaling-agreement.svg, scaling-allreduce.svg and scaling-efficiency.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in (("agreement", _agreement), ("allreduce", _allreduce), ("efficiency", _efficiency)):
        _save(figures.drawn(lambda axes, draw_it=function: draw_it(axes, results)), folder / f"scaling-{name}.svg")  # type: ignore[misc]


def _plot(axes: Any, curves: Curves, last_line: str) -> None:
    """Draw the curves; the last one is calculated."""
    *simulated, calculated = curves
    for number, label in enumerate(simulated):
        axes.plot(*zip(*curves[label], strict=True), label=label,
                  color=figures.COLOURS[number], marker=figures.MARKERS[number])  # fmt: skip
    axes.plot(*zip(*curves[calculated], strict=True), color="0.4", linestyle=last_line, label=calculated)


def _ranks_axis(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("GPUs (ranks)")


def _agreement(axes: Any, results: list[Run]) -> None:
    _plot(axes, agreement_curves(results), "--")
    _ranks_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel("Agreement on a step (µs)")


def _allreduce(axes: Any, results: list[Run]) -> None:
    _plot(axes, allreduce_curves(results), ":")
    _ranks_axis(axes)
    axes.set_ylabel("Allreduce of 3 MiB (ms)")
    axes.set_ylim(bottom=0)


def _efficiency(axes: Any, results: list[Run]) -> None:
    for number, (label, points) in enumerate(efficiency_curves(results).items()):
        colour, noisy = figures.COLOURS[number // 2], number % 2
        style = {"linestyle": ":"} if noisy else {"marker": figures.MARKERS[number // 2]}
        shown = label if not noisy else "with noise of 1 %" if number == 1 else None
        axes.plot(*zip(*points, strict=True), color=colour, label=shown, **style)
    for number, (ranks, value, source) in enumerate(PUBLISHED):
        axes.plot([ranks], [value], color="black", linestyle="none", marker="*x+"[number], markersize=7, label=source)
    _ranks_axis(axes)
    axes.set_ylabel("Parallel efficiency")
    axes.set_ylim(0.5, 1.05)


# ---- tables ----------------------------------------------------------------------------------------------


def by_ranks(curves: Curves, form: str) -> str:
    """Return the values of a picture as Markdown: one row per number of GPUs.

    :param form: the format of a number, as ".3f"
    """
    lines = ["| GPUs | " + " | ".join(curves) + " |", "|---|" + "---:|" * len(curves)]
    values = [dict(points) for points in curves.values()]
    for ranks in sorted({ranks for several in values for ranks in several}):
        cells = (f" {several[ranks]:{form}} |" if ranks in several else " |" for several in values)
        lines.append(f"| {ranks:,} |" + "".join(cells))
    return "\n".join(lines)


def tables(results: list[Run]) -> str:
    """Return all results as Markdown: the settings that differ from the defaults, and microseconds."""
    lines = ["| nodes | ranks | what | us | floor of the links, us |", "|---|---|---|---|---|"]
    for run in sorted(results, key=lambda run: (run["what"], run["asked"]["machine"], run["nodes"], run["seconds"])):
        asked = run["asked"]
        more = ", ".join(f"{k} {v}" for k, v in asked.items() if k not in ("what", "machine", "nodes", "bytes"))
        floor, size = "", ""
        if run["what"] == "allreduce":
            wire = 25e9 * 4 if asked["machine"] == "frontier" else INJECTION
            floor = f"{1e6 * 2 * (run['nodes'] - 1) / run['nodes'] * run['bytes'] / wire:.0f}"
            size = f" of {run['bytes'] / 2**20:.1f} MiB"
        what = f"{asked['machine']}, {run['what']}{size}{', ' if more else ''}{more}"
        lines.append(f"| {run['nodes']:,} | {run['ranks']:,} | {what} | {1e6 * run['seconds']:.1f} | {floor} |")
    return "\n".join([*lines, "", by_ranks(efficiency_curves(results), ".3f")])
